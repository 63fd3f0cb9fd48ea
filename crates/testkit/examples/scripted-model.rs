//! The scripted model server as a program, for tests that need it in a place of its own: a container, another machine.
//!
//! `scripted-model ADDRESS:PORT FILE` plays the actions of FILE, one JSON object a line, until it is killed.

use std::io::{Error, ErrorKind};

use testkit::{Reply, Script};

fn main() -> std::io::Result<()> {
    let usage = || Error::new(ErrorKind::InvalidInput, "usage: scripted-model ADDRESS:PORT FILE");
    let mut args = std::env::args().skip(1);
    let (address, file) = (args.next().ok_or_else(usage)?, args.next().ok_or_else(usage)?);
    let actions = std::fs::read_to_string(file)?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<serde_json::Value>, _>>()?;
    let _model = Script::new(actions.into_iter().map(Reply::Action))
        .start_at(address.parse().map_err(|e| Error::new(ErrorKind::InvalidInput, e))?);
    loop {
        std::thread::park();
    }
}
