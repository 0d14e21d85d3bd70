//! Gives the extension the versions of what its TLS is made of, as the lock file names them.

use std::fs;

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let lock = fs::read_to_string("Cargo.lock").expect("Cargo.lock lies beside this file");
    for (name, variable) in [("rustls", "RUSTLS"), ("aws-lc-sys", "AWS_LC_SYS")] {
        let package = format!("name = \"{name}\"\nversion = \"");
        let (_, version) = lock.split_once(&package).expect(name);
        let (version, _) = version.split_once('"').expect(name);
        println!("cargo::rustc-env=LOCKED_{variable}={version}");
    }
}
