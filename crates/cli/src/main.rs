//! The `oubliette` command.

fn main() {}
