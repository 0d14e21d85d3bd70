"""The crate of the native extension, by Rust's own tools, where cargo is."""
