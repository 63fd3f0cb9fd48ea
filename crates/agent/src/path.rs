//! The one path view that the shell and the file tools share: `/workspace`, seen lexically.
//!
//! Only what can be told from the text is judged here, to give the model a useful sentence. The boundary is
//! the guest's, which resolves every path beneath the workspace.

use policy::Decision;

/// The rule's name in records.
pub(crate) const RULE: &str = "workspace-path";

/// The path relative to the workspace in the form of [`policy::quoted`], which is also taken; or the refusal.
pub(crate) fn inside(path: &str) -> Result<String, Decision> {
    let name = policy::unquoted(path).map_err(|e| Decision::refuse(RULE, e.to_string()))?;
    let slashes = |bytes: &[u8]| bytes.iter().take_while(|b| **b == b'/').count();
    let rest = match slashes(&name) {
        0 => &name[..],
        some => match name[some..].strip_prefix(b"workspace") {
            Some(below) if below.is_empty() || below.starts_with(b"/") => &below[slashes(below)..],
            _ => return Err(outside(path)),
        },
    };
    let mut depth = 0_i32;
    for part in rest.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return Err(outside(path));
        }
    }
    Ok(if rest.is_empty() { ".".to_owned() } else { policy::quoted(rest).into_owned() })
}

fn outside(path: &str) -> Decision {
    let name = path.rsplit('/').find(|p| !p.is_empty() && *p != ".." && *p != ".").unwrap_or("calc.py");
    Decision::refuse(
        RULE,
        format!(
            "the path {} is outside the workspace; use a path relative to the workspace, e.g. {}",
            crate::text::label(path, 120),
            crate::text::label(name, 60)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r21_relative_and_workspace_paths_are_one_view() {
        for (given, seen) in [
            ("calc.py", "calc.py"),
            ("./src/a.rs", "./src/a.rs"),
            ("/workspace/src/a.rs", "src/a.rs"),
            ("/workspace", "."),
            ("/workspace/", "."),
            ("a/../b", "a/../b"),
            ("", "."),
        ] {
            assert_eq!(inside(given).unwrap(), seen, "{given}");
        }
    }

    /// W3: a name that merely begins with two dots is a name.
    #[test]
    fn w3_dot_dot_foo_is_a_legal_name() {
        assert_eq!(inside("..foo").unwrap(), "..foo");
        assert_eq!(inside("a/..foo/b").unwrap(), "a/..foo/b");
    }

    #[test]
    fn names_in_quotes_are_paths_like_others() {
        assert_eq!(inside(r#""/workspace/a\377""#).unwrap(), r#""a\377""#);
        assert_eq!(inside("new\nline").unwrap(), r#""new\nline""#);
        for path in [r#""../x\377""#, r#""/etc/\377""#, r#""a""b""#, r#""\056\056/x""#] {
            assert!(inside(path).is_err(), "{path}");
        }
    }

    #[test]
    fn r13_clearly_outside_paths_are_refused_with_what_would_be_right() {
        for path in ["/etc/passwd", "../x", "a/../../x", "/workspace/../etc/passwd", "/workspaces/x", "/"] {
            let refusal = inside(path).unwrap_err();
            assert_eq!(refusal.rule, RULE);
            assert!(refusal.reason.contains("relative to the workspace"), "{}", refusal.reason);
        }
        assert!(inside("/mnt/calc.py").unwrap_err().reason.ends_with("e.g. calc.py"));
    }
}
