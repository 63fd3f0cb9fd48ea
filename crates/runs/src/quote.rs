//! File names in texts: a hostile name must not look like anything but a name.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::clean::is_invisible;

/// A path for people: as it is when plain, else in quotes with C escapes.
pub(crate) fn in_text(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() || is_invisible(c) || c == '"' || c == '\\') => {
            text.to_owned()
        }
        _ => c_quoted(bytes),
    }
}

/// `prefix/path` as git writes it: quoted unless every byte is plain. Spaces are quoted too, so that no reader
/// has to guess where a name ends.
pub(crate) fn in_patch(prefix: &str, path: &Path) -> String {
    let name = [prefix.as_bytes(), path.as_os_str().as_bytes()].concat();
    if name.iter().all(|b| b.is_ascii_graphic() && *b != b'"' && *b != b'\\') {
        String::from_utf8_lossy(&name).into_owned()
    } else {
        c_quoted(&name)
    }
}

fn c_quoted(bytes: &[u8]) -> String {
    let mut out = String::from('"');
    for b in bytes {
        match b {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            0x20..=0x7e => out.push(char::from(*b)),
            _ => out.push_str(&format!("\\{b:03o}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn names_that_could_mislead_are_quoted() {
        assert_eq!(in_text(Path::new("naïve file.txt")), "naïve file.txt");
        assert_eq!(in_text(Path::new("a\nb")), "\"a\\nb\"");
        assert_eq!(in_text(Path::new(OsStr::from_bytes(b"\xff"))), "\"\\377\"");
        assert_eq!(in_patch("a/", Path::new("x y")), "\"a/x y\"");
        assert_eq!(in_patch("a/", Path::new("-x")), "a/-x");
    }
}
