//! Moves and scans bytes for the Pulsar proxy, outside the interpreter. Python decides; nothing here does.
//!
//! `relay` moves bytes; `topic_list`, on `wire`, checks lists, and `python_lists` is its class for Python.

#![deny(unsafe_code)]

#[cfg(not(feature = "loom"))]
pub mod relay;
#[cfg(feature = "loom")]
#[path = "relay/modelled.rs"]
pub mod relay;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
pub mod tls;
pub mod topic_list;
mod wire;

#[cfg(feature = "python")]
mod python_lists;
#[cfg(feature = "python")]
mod python_tls;

#[cfg(feature = "python")]
mod python {
    use pyo3::prelude::*;

    #[pymodule]
    mod pulsar_proxy_native {
        use pyo3::prelude::*;

        #[pymodule_export]
        use crate::python_lists::TopicListScanner;

        #[pymodule_init]
        fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
            module.add("__version__", env!("CARGO_PKG_VERSION"))?;
            let tls = [("rustls", env!("LOCKED_RUSTLS")), ("aws-lc-sys", env!("LOCKED_AWS_LC_SYS"))];
            module.add("TLS_LIBRARIES", tls.to_vec())?;
            // The number of the interface with Python (proxy/core/native.py): both sides change it together.
            module.add("ENGINE_ABI", 11)?;
            crate::python_tls::register(module)?;
            crate::relay::python::register(module)
        }
    }
}
