from ._native import hello
