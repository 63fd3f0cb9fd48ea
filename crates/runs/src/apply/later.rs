//! What is written now and runs later, on the host: the ways out of a sandbox that lead through the user's own yes.
//!
//! Data, a reason each. A name that is on no list proves nothing: every changed line of code runs some day. The lists
//! hold what runs without being asked for, and what hides from who reads.

use std::path::Path;

use serde::Serialize;

use crate::changes::Change;
use crate::clean::{is_hidden, is_invisible};
use crate::manifest::Kind;
use crate::patch::Side;
use crate::quote::in_text;

/// Something to look at before a change is taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// A stable word.
    pub code: &'static str,
    /// Whether it wants a word of its own from the user.
    pub grave: bool,
    /// Which file, fit to be shown.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// Files of one kind.
struct Rule {
    code: &'static str,
    grave: bool,
    reason: &'static str,
    /// `name`: a file of this name; `name/`: anything in such a folder; `a/b`: a file of this way; `*.x` and `x*`: the
    /// end and the start of a file's name. Anywhere in the tree, in capitals or not.
    names: &'static [&'static str],
}

const RULES: &[Rule] = &[
    Rule {
        code: "git",
        grave: true,
        reason: "git runs or obeys it: hooks, filters, drivers, where submodules come from",
        names: &[
            ".git/",
            ".git",
            // With `objects` and `refs` beside it any folder is a repository, whose settings start programs.
            "HEAD",
            ".gitattributes",
            ".gitmodules",
            ".gitconfig",
            ".githooks/",
            ".husky/",
            ".pre-commit-config.yaml",
            ".pre-commit-hooks.yaml",
            "lefthook.yml",
            "lefthook.yaml",
            ".lefthook.yml",
            ".lintstagedrc*",
            ".overcommit.yml",
            ".hg/",
            ".hgrc",
            ".jj/",
        ],
    },
    Rule {
        code: "editor",
        grave: true,
        reason: "an editor runs or obeys it when the folder is opened",
        names: &[
            ".vscode/",
            "*.code-workspace",
            ".idea/",
            ".fleet/",
            ".zed/",
            ".vs/",
            ".vim/",
            ".nvim/",
            ".exrc",
            ".vimrc",
            ".nvimrc",
            ".nvim.lua",
            ".lvimrc",
            ".dir-locals.el",
            ".dir-locals-2.el",
            ".projectile",
            ".emacs",
            ".sublime-project",
            "*.sublime-project",
            ".devcontainer/",
            ".devcontainer.json",
            ".gitpod.yml",
            ".editorconfig",
            ".nova/",
            ".helix/",
        ],
    },
    Rule {
        code: "shell",
        grave: true,
        reason: "a shell or a tool of the shell runs it when the folder is entered, or at the next login",
        names: &[
            ".envrc",
            ".env",
            ".env.*",
            ".bashrc",
            ".bash_profile",
            ".bash_login",
            ".bash_logout",
            ".bash_aliases",
            ".profile",
            ".zshrc",
            ".zshenv",
            ".zprofile",
            ".zlogin",
            ".zlogout",
            ".kshrc",
            ".cshrc",
            ".tcshrc",
            ".login",
            "config.fish",
            ".inputrc",
            ".tmux.conf",
            ".screenrc",
            ".mise.toml",
            "mise.toml",
            ".mise/",
            ".rtx.toml",
            ".tool-versions",
            ".autoenv",
            ".autoenv.zsh",
            "devbox.json",
            ".direnv/",
            ".gdbinit",
            ".lldbinit",
            ".psqlrc",
            ".sqliterc",
            ".curlrc",
            ".wgetrc",
            ".ssh/",
            ".gnupg/",
            ".netrc",
            ".config/",
            ".local/",
            "*.desktop",
            "autorun.inf",
            "desktop.ini",
        ],
    },
    Rule {
        code: "agent",
        grave: true,
        reason: "a coding agent takes it for orders or starts programs that it names",
        names: &[
            "oubliette.toml",
            "guild.toml",
            ".claude/",
            ".claude.json",
            "CLAUDE.md",
            "CLAUDE.local.md",
            "AGENTS.md",
            "AGENT.md",
            "AGENTS.override.md",
            "GEMINI.md",
            ".gemini/",
            ".cursor/",
            ".cursorrules",
            ".cursorignore",
            ".mcp.json",
            "mcp.json",
            ".aider*",
            "CONVENTIONS.md",
            ".windsurf/",
            ".windsurfrules",
            ".codeium/",
            ".continue/",
            ".cline/",
            ".clinerules",
            ".clinerules/",
            ".roo/",
            ".roorules",
            ".roomodes",
            ".kilocode/",
            ".amazonq/",
            ".kiro/",
            ".codex/",
            ".opencode/",
            "opencode.json",
            ".goosehints",
            ".junie/",
            ".augment/",
            ".trae/",
            ".agents/",
            ".github/copilot-instructions.md",
            ".github/instructions/",
            ".github/prompts/",
            "SKILL.md",
            "llms.txt",
        ],
    },
    Rule {
        code: "ci",
        grave: true,
        reason: "a build server runs it, with keys of its own, when it is pushed",
        names: &[
            ".github/workflows/",
            ".github/actions/",
            "action.yml",
            "action.yaml",
            ".github/dependabot.yml",
            ".gitlab-ci.yml",
            ".gitlab/",
            "Jenkinsfile*",
            ".circleci/",
            ".travis.yml",
            "azure-pipelines*",
            ".azure-pipelines/",
            ".drone.yml",
            ".woodpecker.yml",
            ".woodpecker/",
            "bitbucket-pipelines.yml",
            "appveyor.yml",
            ".appveyor.yml",
            ".buildkite/",
            ".teamcity/",
            "cloudbuild.yaml",
            "cloudbuild.yml",
            "buildspec.yml",
            ".cirrus.yml",
            ".forgejo/",
            ".gitea/",
            ".builds/",
            ".build.yml",
            "wercker.yml",
            ".semaphore/",
            "codemagic.yaml",
            "renovate.json",
            ".renovaterc*",
            ".tekton/",
            "netlify.toml",
            "vercel.json",
            "fly.toml",
            "Procfile",
        ],
    },
    Rule {
        code: "install",
        grave: true,
        reason: "a package tool or an interpreter runs it by itself, at an install, a build or the next start",
        names: &[
            "package.json",
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".yarn/",
            ".pnpmfile.cjs",
            "pnpmfile.js",
            "pnpm-workspace.yaml",
            "bunfig.toml",
            "binding.gyp",
            "setup.py",
            "setup.cfg",
            "pyproject.toml",
            "sitecustomize.py",
            "usercustomize.py",
            "*.pth",
            "conftest.py",
            "pytest.ini",
            "tox.ini",
            "noxfile.py",
            ".python-version",
            "pip.conf",
            ".pypirc",
            ".condarc",
            "build.rs",
            ".cargo/",
            "rust-toolchain",
            "rust-toolchain.toml",
            "build.zig",
            "Package.swift",
            "extconf.rb",
            "*.gemspec",
            "Gemfile",
            ".bundle/",
            ".irbrc",
            ".pryrc",
            "composer.json",
            ".htaccess",
            ".user.ini",
            "mix.exs",
            ".iex.exs",
            "build.gradle*",
            "settings.gradle*",
            "gradle.properties",
            "init.gradle*",
            "gradlew",
            "gradlew.bat",
            "gradle-wrapper.properties",
            ".mvn/",
            "mvnw",
            "pom.xml",
            "build.sbt",
            ".sbtopts",
            ".jvmopts",
            "Directory.Build.props",
            "Directory.Build.targets",
            "nuget.config",
            "go.work",
            "CMakePresets.json",
            ".Rprofile",
            ".Renviron",
            ".octaverc",
            "startup.m",
            ".ghci",
            "Setup.hs",
            "flake.nix",
            "default.nix",
            "shell.nix",
        ],
    },
    Rule {
        code: "build",
        grave: false,
        reason: "it runs at the next build or test that you ask for",
        names: &[
            "Makefile",
            "GNUmakefile",
            "*.mk",
            "*.mak",
            "justfile",
            ".justfile",
            "Taskfile.yml",
            "Taskfile.yaml",
            "Rakefile",
            "CMakeLists.txt",
            "*.cmake",
            "configure",
            "configure.ac",
            "meson.build",
            "SConstruct",
            "SConscript",
            "BUILD",
            "BUILD.bazel",
            "WORKSPACE",
            "MODULE.bazel",
            ".bazelrc",
            "Dockerfile*",
            "Containerfile*",
            "docker-compose*",
            "compose.yml",
            "compose.yaml",
            "Vagrantfile",
            "gulpfile*",
            "Gruntfile*",
            "webpack.config*",
            "vite.config*",
            "rollup.config*",
            "jest.config*",
            "vitest.config*",
            "babel.config*",
            ".babelrc*",
            ".eslintrc*",
            "eslint.config*",
            "prettier.config*",
            ".prettierrc*",
            "tsconfig*.json",
            "next.config*",
            "postcss.config*",
            "tailwind.config*",
            "karma.conf*",
            "*.tf",
            "Tiltfile",
            "build.xml",
            "ansible.cfg",
        ],
    },
];

/// What is to be said about one change; its sides as they are shown, so far as they can be.
pub(super) fn warn(
    path: &Path,
    change: &Change,
    (old, new): (Option<Side<'_>>, Option<Side<'_>>),
    warnings: &mut Vec<Warning>,
) {
    let mut add = |code, grave, reason: String| {
        warnings.push(Warning { code, grave, path: in_text(path), reason });
    };
    let Some(item) = &change.new else { return };
    for rule in RULES.iter().filter(|rule| rule.names.iter().any(|name| fits(path, name))) {
        add(rule.code, rule.grave, rule.reason.to_owned());
    }
    let name = path.to_string_lossy();
    if name.chars().any(|c| c.is_control() || is_invisible(c) || is_hidden(c)) {
        add("name", true, "its name holds control or invisible characters".to_owned());
    }
    let is_file = matches!(item.kind, Kind::File { .. });
    let was_file = matches!(change.old.as_ref().map(|old| &old.kind), Some(Kind::File { .. }));
    if let Kind::Link { target } = &item.kind {
        let target = in_text(Path::new(target));
        add(
            "link",
            false,
            format!("it is a link to {target}: what is read or written there is another file"),
        );
    }
    let starts = |item: &crate::manifest::Item| item.mode & 0o100 != 0;
    let was = change.old.as_ref().filter(|_| was_file).is_some_and(starts);
    match (is_file && starts(item), was) {
        (true, false) => add("executable", false, "it can be started from now on".to_owned()),
        (false, true) if is_file => add("mode", false, "it can no longer be started".to_owned()),
        (true, true) | (false, _) => {}
    }
    let (Some(new), true) = (new, is_file) else { return };
    if new.bytes.is_empty() && matches!(&item.kind, Kind::File { size, .. } if *size > 0) {
        return add("unseen", false, "it is too large to be looked into".to_owned());
    }
    if new.bytes.contains(&0) {
        return add("unseen", false, "it is no text and cannot be shown".to_owned());
    }
    let before = old.filter(|_| was_file).map(|old| hidden(old.bytes)).unwrap_or_default();
    let now = hidden(new.bytes);
    for (n, (code, what)) in [
        ("terminal", "control characters that drive a terminal"),
        ("bidi", "characters that turn the order of text around"),
        ("invisible", "characters that nobody sees"),
    ]
    .into_iter()
    .enumerate()
    {
        if now[n] > before[n] {
            add(code, true, format!("it holds {} {what}, {} of them new", now[n], now[n] - before[n]));
        }
    }
}

/// Characters that drive a terminal, turn text around, or cannot be seen.
fn hidden(bytes: &[u8]) -> [usize; 3] {
    let mut found = [0; 3];
    let text = String::from_utf8_lossy(bytes);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let return_alone = c == '\r' && chars.peek().is_some_and(|next| *next != '\n');
        match c {
            '\n' | '\t' | '\x0c' => {}
            '\r' if !return_alone => {}
            c if c.is_control() => found[0] += 1,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                found[1] += 1
            }
            c if is_invisible(c) || is_hidden(c) => found[2] += 1,
            _ => {}
        }
    }
    found
}

fn fits(path: &Path, name: &str) -> bool {
    let parts: Vec<String> =
        path.components().map(|c| c.as_os_str().to_string_lossy().to_lowercase()).collect();
    let name = name.to_lowercase();
    let Some((file, folders)) = parts.split_last() else { return false };
    if let Some(way) = name.strip_suffix('/') {
        let way: Vec<&str> = way.split('/').collect();
        // A link or a file in the place of such a folder is the folder's.
        return parts.windows(way.len()).any(|window| window.iter().eq(way.iter()));
    }
    if let Some((folder, name)) = name.rsplit_once('/') {
        return file == name && folders.last().is_some_and(|last| last == folder);
    }
    match name.split_once('*') {
        Some((start, end)) => {
            file.len() >= start.len() + end.len() && file.starts_with(start) && file.ends_with(end)
        }
        None => *file == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Item;

    fn told(path: &str, old: Option<&[u8]>, new: &[u8], mode: u32) -> Vec<&'static str> {
        let item = |bytes: &[u8], mode| {
            let size = u64::try_from(bytes.len()).unwrap();
            Item { kind: Kind::File { size, sha256: String::new() }, mode }
        };
        let change = Change { old: old.map(|bytes| item(bytes, 0o644)), new: Some(item(new, mode)) };
        let side = |bytes| Side { mode: 0o100_644, bytes };
        let mut warnings = Vec::new();
        warn(Path::new(path), &change, (old.map(side), Some(side(new))), &mut warnings);
        assert!(warnings.iter().all(|warning| !warning.reason.is_empty()));
        warnings.iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn r3_what_runs_later_on_the_host_is_told_with_its_kind() {
        for (path, code) in [
            (".gitattributes", "git"),
            ("deep/down/.gitmodules", "git"),
            ("docs/HEAD", "git"),
            ("oubliette.toml", "agent"),
            ("team/guild.toml", "agent"),
            (".husky/pre-commit", "git"),
            (".vscode/tasks.json", "editor"),
            ("a/.idea/workspace.xml", "editor"),
            (".exrc", "editor"),
            (".nvim.lua", "editor"),
            (".vim/x.vim", "editor"),
            (".dir-locals.el", "editor"),
            (".envrc", "shell"),
            (".ENVRC", "shell"),
            (".bashrc", "shell"),
            (".profile", "shell"),
            (".github/workflows/x.yml", "ci"),
            (".gitlab-ci.yml", "ci"),
            ("Jenkinsfile.release", "ci"),
            ("package.json", "install"),
            ("setup.py", "install"),
            ("crates/x/build.rs", "install"),
            (".npmrc", "install"),
            (".cargo/config.toml", "install"),
            ("tests/conftest.py", "install"),
            ("sitecustomize.py", "install"),
            ("evil.pth", "install"),
            ("pyproject.toml", "install"),
            (".claude/settings.json", "agent"),
            ("CLAUDE.md", "agent"),
            ("sub/AGENTS.md", "agent"),
            (".cursor/rules/x", "agent"),
            (".mcp.json", "agent"),
            (".aider.conf.yml", "agent"),
            (".gemini/settings.json", "agent"),
            (".github/copilot-instructions.md", "agent"),
            ("Makefile", "build"),
            ("justfile", "build"),
        ] {
            assert!(told(path, None, b"x\n", 0o644).contains(&code), "{path}");
        }
        for path in ["src/main.rs", "README.md", "github/workflows/x", "claude.rs", "my-package.json.txt"] {
            assert_eq!(told(path, None, b"x\n", 0o644), [""; 0], "{path}");
        }
    }

    #[test]
    fn r3_only_what_is_new_is_told_of_an_executable_and_of_hidden_text() {
        assert_eq!(told("x", None, b"x", 0o755), ["executable"]);
        assert_eq!(told("x", Some(b"x"), b"y", 0o755), ["executable"]);
        assert_eq!(told("x", None, b"a\x1b[2Jb", 0o644), ["terminal"]);
        assert_eq!(told("x", None, b"shown\rhidden\n", 0o644), ["terminal"]);
        assert_eq!(told("x", None, b"windows\r\nlines\r\n", 0o644), [""; 0]);
        assert_eq!(told("x", None, "a\u{202e}b".as_bytes(), 0o644), ["bidi"]);
        assert_eq!(told("x", None, "a\u{200b}b\u{e0041}".as_bytes(), 0o644), ["invisible"]);
        assert_eq!(told("x", Some(b"a\x1bb"), b"c\x1bd", 0o644), [""; 0]);
        assert_eq!(told("x", Some(b"a\x1bb"), b"c\x1b\x1bd", 0o644), ["terminal"]);
        assert_eq!(told("x", None, b"a\0b", 0o644), ["unseen"]);
        assert_eq!(told("a\u{202e}b", None, b"x", 0o644), ["name"]);
    }
}
