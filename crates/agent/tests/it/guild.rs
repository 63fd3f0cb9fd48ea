//! W8: a Guild is read from its own folder and from nowhere else.

use std::os::unix::fs::symlink;
use std::path::Path;

use agent::load;
use policy::Code;
use tempfile::TempDir;

const MANIFEST: &str = "schema = 1\nname = \"m\"\nentry = \"coder\"\n\n[roles.coder]\nprompt = \"prompts/coder.md\"\ntools = [\"read_file\", \"finish\"]\n";

fn folder(manifest: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("prompts")).unwrap();
    std::fs::write(dir.path().join("guild.toml"), manifest).unwrap();
    std::fs::write(dir.path().join("prompts/coder.md"), "You fix code.").unwrap();
    dir
}

fn codes(dir: &Path) -> Vec<Code> {
    load(dir).unwrap_err().iter().map(|f| f.code).collect()
}

#[test]
fn a_guild_comes_with_its_prompts_and_a_digest_of_all_of_it() {
    let dir = folder(MANIFEST);
    let one = load(dir.path()).unwrap();
    assert_eq!(one.prompts.values().next().unwrap(), "You fix code.");
    assert_eq!(one.digest, load(dir.path()).unwrap().digest);
    std::fs::write(dir.path().join("prompts/coder.md"), "You fix codes.").unwrap();
    assert_ne!(one.digest, load(dir.path()).unwrap().digest);
}

#[test]
fn w8_a_linked_prompt_is_refused() {
    let dir = folder(MANIFEST);
    let secret = TempDir::new().unwrap();
    std::fs::write(secret.path().join("coder.md"), "secret").unwrap();
    let prompt = dir.path().join("prompts/coder.md");
    std::fs::remove_file(&prompt).unwrap();
    symlink(secret.path().join("coder.md"), &prompt).unwrap();
    assert_eq!(codes(dir.path()), [Code::PathEscapes]);
    std::fs::remove_file(&prompt).unwrap();
    std::fs::remove_dir(dir.path().join("prompts")).unwrap();
    symlink(secret.path(), dir.path().join("prompts")).unwrap();
    assert_eq!(codes(dir.path()), [Code::PathEscapes]);
}

#[test]
fn w8_a_prompt_path_that_leaves_is_refused() {
    for path in ["../outside.md", "/etc/hostname", "prompts/../../x"] {
        let dir = folder(&MANIFEST.replace("prompts/coder.md", path));
        assert_eq!(codes(dir.path()), [Code::PathEscapes], "{path}");
    }
}

/// OC-35.4.
#[test]
fn oc_35_4_unknown_tools_are_refused_at_load() {
    let dir = folder(&MANIFEST.replace("\"read_file\"", "\"ReadFile\", \"Glob\""));
    assert_eq!(codes(dir.path()), [Code::UnknownTool, Code::UnknownTool]);
}

#[test]
fn a_prompt_that_is_missing_too_long_or_no_text_is_named_as_the_user_would() {
    let dir = folder(MANIFEST);
    let prompt = dir.path().join("prompts/coder.md");
    for content in [None, Some(vec![b'x'; 70_000]), Some(vec![0xff, 0xfe])] {
        match &content {
            None => std::fs::remove_file(&prompt).unwrap(),
            Some(bytes) => std::fs::write(&prompt, bytes).unwrap(),
        }
        let faults = load(dir.path()).unwrap_err();
        let fault = faults.iter().next().unwrap();
        assert_eq!(fault.file, prompt.display().to_string());
        assert_eq!(fault.key, "roles.coder.prompt");
    }
}

#[test]
fn a_folder_without_a_manifest_says_so() {
    let dir = TempDir::new().unwrap();
    let faults = load(dir.path()).unwrap_err();
    assert!(faults.to_string().contains("guild.toml"), "{faults}");
}
