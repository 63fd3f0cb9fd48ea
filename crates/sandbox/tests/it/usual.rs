//! What programs take for granted: a home, a clock's place, letters, memory to share, a repository of one's own.

use std::path::Path;

use crate::{Inside, on_every_tier, own};

on_every_tier! {
    /// Git refuses to work in a repository of somebody else's ("dubious ownership"): what is taken in is the guest's.
    no_machine("what is put into the workspace here comes after a machine took it in")
    fn git_works_in_a_repository_that_was_taken_in(inside: &Inside) {
        for (name, content) in [
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/config", "[core]\n\trepositoryformatversion = 0\n[user]\n\tname = x\n\temail = x@localhost\n"),
            ("file", "1\n"),
        ] {
            put(&inside.workspace(), name, content);
        }
        for folder in [".git/objects", ".git/refs/heads"] {
            std::fs::create_dir_all(inside.workspace().join(folder)).unwrap();
        }
        for folder in [".git", ".git/objects", ".git/refs", ".git/refs/heads"] {
            own(&inside.workspace().join(folder));
        }
        let ran = inside.sh("git add -A && git commit -q -m first && echo 2 > file && git status --short && git log --format=%s");
        assert_eq!((ran.out.as_str(), ran.err.as_str()), (" M file\nfirst\n", ""));
    }

    bubblewrap(holds)
    fn a_home_and_a_folder_for_temporary_files_can_be_written_and_are_private(inside: &Inside) {
        let line = "set -e; cd \"$HOME\"; mkdir -p .config/x; echo y > .config/x/y; cat .config/x/y; cat ~/.config/x/y; \
            f=$(mktemp); echo z > $f; cat $f; python3 -c \"import os; print(os.path.expanduser('~') == os.environ['HOME'])\"";
        let ran = inside.sh(line);
        assert_eq!(ran.out, "y\ny\nz\nTrue\n", "{}", ran.err);
    }

    bubblewrap(differs: "no `LANG` is handed in there")
    fn letters_are_utf8_and_the_clock_has_a_place(inside: &Inside) {
        let program = "import locale, os, sys, time\n\
            print(sys.stdout.encoding, sys.getfilesystemencoding(), locale.setlocale(locale.LC_ALL, ''))\n\
            print('naïve ✓'.encode() == 'naïve ✓'.encode(sys.getfilesystemencoding()), time.tzname[0])\n\
            open('naïve ✓', 'w').close(); print(os.listdir('.'))";
        let ran = inside.python(program);
        assert_eq!(ran.out, "utf-8 utf-8 C.UTF-8\nTrue UTC\n['naïve ✓']\n", "{}", ran.err);
    }

    not_confined("`/dev/shm` is the host's, and closed; its memory to share is an anonymous mapping")
    bubblewrap(holds)
    fn shared_memory_can_be_made_and_is_seen_by_another_process(inside: &Inside) {
        let program = "import multiprocessing as m, multiprocessing.shared_memory as s\n\
            def work(name):\n  b = s.SharedMemory(name); b.buf[0] = 7; b.close()\n\
            if True:\n  a = s.SharedMemory(create=True, size=1 << 20)\n  p = m.get_context('fork').Process(target=work, args=(a.name,))\n  \
            p.start(); p.join(); print(a.buf[0]); a.close(); a.unlink()\n\
            open('/dev/shm/x', 'w').write('y'); print(open('/dev/shm/x').read())";
        let ran = inside.python(program);
        assert_eq!(ran.out, "7\ny\n", "{}", ran.err);
    }
}

fn put(root: &Path, name: &str, content: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    own(&path);
}

/// Zones by name are the host's, where it has them.
#[test]
fn a_time_zone_by_name_is_there_where_the_host_has_it() {
    let zone = Path::new("/usr/share/zoneinfo/Asia/Tokyo").exists();
    for tier in crate::TIERS {
        let hour = Inside::new(tier).sh("TZ=Asia/Tokyo date -d @0 +%H").out;
        assert_eq!(hour, if zone { "09\n" } else { "00\n" }, "{tier}");
    }
}
