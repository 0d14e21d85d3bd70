//! The topic-list scanner as a class of Python.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::topic_list;

/// Scans one topic list of `total` bytes.
#[pyclass(module = "pulsar_proxy_native")]
pub struct TopicListScanner {
    scanner: topic_list::TopicListScanner,
}

#[pymethods]
impl TopicListScanner {
    #[new]
    fn new(total: u64) -> Self {
        Self { scanner: topic_list::TopicListScanner::new(total) }
    }

    /// Read the next bytes; return why they are no topic list, or None.
    #[allow(unsafe_code)] // The other place of unsafe code is relay/sys.rs: a copy of each 64 KiB would be the price.
    fn feed(&mut self, chunk: &Bound<'_, PyByteArray>) -> PyResult<Option<String>> {
        // SAFETY: this thread is attached to the interpreter until `feed` returns, and runs no Python meanwhile, so
        // that nobody can change the bytes or their place.
        let bytes = unsafe { chunk.as_bytes() };
        match catch_unwind(AssertUnwindSafe(|| self.scanner.feed(bytes))) {
            Ok(read) => Ok(read.err().map(|refused| refused.to_string())),
            Err(_) => Err(PyRuntimeError::new_err("the native topic-list scanner has panicked")),
        }
    }

    /// Return filtered, changed, topics_hash, the number of names and their bytes.
    ///
    /// As in Python's decoder, a hash that is no UTF-8 is bytes.
    fn found<'py>(&self, py: Python<'py>) -> (bool, bool, Bound<'py, PyAny>, u64, u64) {
        let found = self.scanner.found();
        let hash = match std::str::from_utf8(&found.topics_hash) {
            Ok(text) => PyString::new(py, text).into_any(),
            Err(_) => PyBytes::new(py, &found.topics_hash).into_any(),
        };
        (found.filtered, found.changed, hash, found.topics, found.name_bytes)
    }
}
