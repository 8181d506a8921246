//! What limits a run: each limit planted into a synthetic system, and healthy systems beside them.

mod context;
mod documented;
mod healthy;
mod planted;
mod system;
