//! The native half of the Python package.
#![deny(unsafe_code)]
use pyo3::prelude::*;

/// doc
#[pymodule]
mod _native {
    use super::*;
    #[pyfunction]
    fn hello() -> usize {
        1
    }
}
