//! What the crate promises, seen from outside: text in, values or faults out.

#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

mod command;
mod denies;
mod deployment;
mod document;
mod grant;
mod guild;
mod narrower;
mod schema;
mod shape;

use policy::{Code, Faults};

/// `code key@line:column` of every fault, in order.
fn told(faults: &Faults) -> Vec<String> {
    faults
        .iter()
        .map(|fault| {
            let place = fault.place.map(|p| format!("@{}:{}", p.line, p.column)).unwrap_or_default();
            format!("{} {}{place}", fault.code.as_str(), fault.key)
        })
        .collect()
}

/// Whether there is a fault of this code about this key.
fn tells(faults: &Faults, code: Code, key: &str) -> bool {
    faults.iter().any(|fault| fault.code == code && fault.key == key)
}

/// The message and the help about a key.
fn about(faults: &Faults, key: &str) -> String {
    let found = faults.iter().find(|fault| fault.key == key);
    found.map(|f| format!("{}; {}", f.message, f.help.clone().unwrap_or_default())).unwrap_or_default()
}
