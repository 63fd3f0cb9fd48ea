//! `exec`: the guest's own exit code, input, output, bounds.

use serde_json::json;

use crate::place::{Place, fed};
use crate::{Who, everywhere};

everywhere! {
    /// The guest's own code is the program's.
    fn the_exit_code_is_the_guests(place: &Place) {
        for (line, code) in [("exit 0", 0), ("exit 7", 7), ("exit 137", 137), ("exit 255", 255), ("kill -TERM $$", 143)] {
            let ran = place.sh(line);
            assert_eq!((ran.code, ran.err.as_str()), (Some(code), ""), "{line}");
        }
    }

    /// R30, R45: another user, no way to gain rights, loopback only.
    fn r45_the_guest_has_no_rights_and_no_network(place: &Place) {
        let ran = place.sh("grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; cut -d: -f1 /proc/net/dev; \
            python3 -c 'import socket
for at in [(\"1.1.1.1\", 53), (\"169.254.169.254\", 80), (\"10.0.0.1\", 22)]:
    try:
        socket.create_connection(at, 2); print(\"connected\")
    except OSError: print(\"no way\")'");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.out.matches("no way").count(), 3, "{ran:?}");
        assert!(!ran.out.contains("connected"), "{ran:?}");
        let devices: Vec<&str> = ran.out.lines().skip_while(|l| !l.contains("face")).skip(1).map(str::trim)
            .filter(|l| *l != "no way").collect();
        assert_eq!(devices, ["lo"], "{ran:?}");
        // gVisor tells the bounding set of its own kernel; the effective one is empty everywhere.
        assert!(ran.out.contains("CapEff:\t0000000000000000"), "{ran:?}");
    }

    /// R24: what is not the workspace or a temporary folder cannot be written.
    fn r24_the_system_is_read_only(place: &Place) {
        let ran = place.sh("for d in / /usr /usr/bin /etc /bin /lib /proc /var; do touch $d/x 2>/dev/null && echo wrote $d; done; \
            (: > /usr/bin/env) 2>/dev/null; rm -f /usr/bin/env 2>/dev/null; test -x /usr/bin/env && touch here /tmp/here && echo fine");
        assert_eq!(ran.out, "fine\n", "{ran:?}");
    }
}

#[test]
fn r23_home_keys_and_sockets_of_the_host_are_not_there() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        place.write("home/.ssh/id_ed25519", "PRIVATE-KEY-TEXT");
        let home = place.path("home").display().to_string();
        let ran = place.sh(&format!(
            "cat {home}/.ssh/id_ed25519 ~/.ssh/* /etc/shadow /etc/ssh/*key; ls -A /root /home /var/run/docker.sock /run {home}; true"
        ));
        assert!(!ran.out.contains("PRIVATE") && !ran.out.contains("docker"), "{tier}: {ran:?}");
        assert!(!ran.out.contains("root:x:") && !ran.out.contains("root:*:"), "{tier}: {ran:?}");
    }
}

/// OC-21: nobody answers, and nobody is waited for.
#[test]
fn a_terminal_is_given_when_asked_and_what_is_printed_on_it_is_cleaned() {
    let place = Place::quick();
    let asks = [
        "sh",
        "-c",
        "tty >/dev/null && echo yes; tput clear 2>/dev/null; printf '\\033]0;x\\007'; read answer; echo \"[$answer]\" >&2",
    ];
    let ran = place.exec_with(&["--tty"], &asks);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "yes\n[]\n", ""), "{ran:?}");
    assert_eq!(place.events_of("tool_start")[0]["job"]["exec"]["terminal"], true);
    let ran = fed(&mut place.exec_command(&["-t", "-i"], &asks), b"typed\n");
    assert_eq!(ran.out, "yes\n[typed]\n", "{ran:?}");
    let ran = place.exec(&asks);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", "[]\n"), "{ran:?}");
}

#[test]
fn a_module_has_no_terminal() {
    let place = Place::quick();
    let ran = place.ran(["exec", "--tier", "wasm", "--floor", "confined", "--tty", "--", "x.wasm"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("a module has no terminal"), "{ran:?}");
}

#[test]
fn standard_input_is_handed_on_only_when_asked() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        let given = fed(&mut place.exec_command(&["-i"], &["wc", "-c"]), &vec![b'x'; 300_000]);
        assert_eq!((given.code, given.out.trim()), (Some(0), "300000"), "{tier}");
        let kept = fed(&mut place.exec_command(&[], &["wc", "-c"]), b"hello");
        assert_eq!((kept.code, kept.out.trim()), (Some(0), "0"), "{tier}");
    }
}

#[test]
fn standard_input_beyond_its_bound_is_an_error_of_usage() {
    let place = Place::quick();
    let ran = fed(&mut place.exec_command(&["-i"], &["cat"]), &vec![b'x'; (1 << 20) + 1]);
    ran.assert_refused(2, "longer than 1 MiB");
    assert!(place.ids().is_empty());
}

/// R29, R36: a sleeper, and one that hides its children, are dead in time.
#[test]
fn r29_a_timeout_kills_everything_and_is_named() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        // No other bound of time would come as soon.
        place.write("oubliette.toml", "[call]\ntimeout = \"10m\"\n[limits]\nwall = \"1h\"\n");
        let line = "trap '' TERM; setsid sleep 1000 & (sleep 1000 &) ; echo started; sleep 1000";
        let start = std::time::Instant::now();
        let ran = place.exec_with(&["--timeout", "5"], &["sh", "-c", line]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(4), "started\n"), "{tier}: {ran:?}");
        assert!(ran.err.contains("stopped by timeout"), "{tier}: {ran:?}");
        assert!(start.elapsed() < std::time::Duration::from_secs(300), "{tier}: {:?}", start.elapsed());
        assert_eq!(place.events_of("tool_end")[0]["outcome"]["stopped_by"], "timeout", "{tier}");
    }
}

/// R44: output without end is ended at its bound, the outcome names it, and what is kept of it is less.
#[test]
fn r44_output_without_end_is_stopped_and_named() {
    for tier in ["namespace", "gvisor", "confined"] {
        let place = Place::new(tier, Who::Own);
        place.write("oubliette.toml", "[call]\nflood = \"8MiB\"\n");
        let ran = place.exec(&["yes"]);
        let artifacts = std::fs::read_dir(place.newest().join("artifacts")).unwrap();
        let kept: Vec<u64> = artifacts.map(|a| a.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(kept, [1 << 20], "{tier}");
        assert_eq!(ran.code, Some(4), "{tier}: {}", ran.err);
        assert!(ran.err.contains("stopped by output"), "{tier}: {}", ran.err);
        assert!(ran.out.len() <= (1 << 20) + 1000, "{tier}: {}", ran.out.len());
    }
}

/// R38: memory without end is stopped, and named where a group holds it.
#[test]
fn r38_memory_without_end_is_stopped_and_named() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        place.write("oubliette.toml", "[call]\ntimeout = \"2m\"\n[limits]\nmemory = \"256MiB\"\n");
        let program = "x = []\nwhile True: x.append(bytearray(1 << 24))";
        let ran = place.exec(&["python3", "-c", program]);
        assert_ne!(ran.code, Some(0), "{tier}: {ran:?}");
        let held = layer(&place, "memory")["state"] == "full";
        if held {
            assert_eq!(ran.code, Some(4), "{tier}: {ran:?}");
            assert!(ran.err.contains("stopped by memory"), "{tier}: {ran:?}");
            place.assert_whole("finished");
            assert_eq!(place.file_of_run("result.json")["summary"], "stopped by memory", "{tier}");
        }
        assert_eq!(place.exec(&["true"]).code, Some(0), "{tier}");
    }
}

/// R39: a fork bomb ends with the call, whichever bound strikes it.
#[test]
fn r39_a_fork_bomb_dies_and_leaves_nothing() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        place.write("oubliette.toml", "[limits]\nprocesses = 40\n");
        let bomb = "import os, time\nend = time.time() + 1\nwhile time.time() < end:\n    try: os.fork()\n    except OSError: pass\ntime.sleep(900)";
        let ran = place.exec_with(&["--timeout", "3"], &["python3", "-c", bomb]);
        assert_eq!(ran.code, Some(4), "{tier}: {ran:?}");
        let by = place.events_of("tool_end")[0]["outcome"]["stopped_by"].clone();
        assert!(by == "processes" || by == "timeout", "{tier}: {by}");
        assert_eq!(crate::process::running(&["python3", "-c", bomb]), Vec::<u32>::new(), "{tier}");
        assert_eq!(place.exec(&["true"]).code, Some(0), "{tier}");
    }
}

/// R44: what is too much for the disk is not taken in afterwards either.
#[test]
fn r44_files_beyond_the_bound_are_not_collected() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        place.write("oubliette.toml", "[limits]\ndisk = \"4MiB\"\n");
        let line = "truncate -s 3M sparse; mkfifo pipe; ln -s /etc/passwd link; for i in 1 2 3 4; do head -c 5000000 /dev/zero > big$i; done; exit 0";
        let ran = place.exec_with(&["--json"], &["sh", "-c", line]);
        // A shell that is quicker than the watch lives on and ends with 0, in a workspace that is full now.
        assert!([Some(0), Some(4)].contains(&ran.code), "{tier}: {ran:?}");
        let refused = ran.json()["run"]["changes"]["refused"].to_string();
        assert!(refused.contains("link"), "{tier}: {refused}");
        let kept: u64 = std::fs::read_dir(place.newest().join("artifacts"))
            .unwrap()
            .map(|e| e.unwrap().metadata().unwrap().len())
            .sum();
        assert!(kept <= 10 << 20, "{tier}: {kept} bytes are kept");
        place.assert_whole("finished");
    }
}

fn layer(place: &Place, name: &str) -> serde_json::Value {
    let layers = place.file_of_run("meta.json")["sandbox"]["layers"].clone();
    layers.as_array().unwrap().iter().find(|l| l["name"] == name).unwrap().clone()
}

#[test]
fn a_program_that_is_not_there_is_127() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        let ran = place.exec(&["no-such-program"]);
        assert_eq!(ran.code, Some(127), "{tier}: {ran:?}");
        assert!(ran.err.contains("no-such-program"), "{tier}: {ran:?}");
    }
}

/// R33: what a terminal would obey, and what is no text, is not shown as it is.
#[test]
fn r33_binary_output_and_escapes_are_cleaned() {
    let place = Place::quick();
    let ran = place.sh("printf 'a\\033[31mred\\033]0;title\\007\\377\\000b\\n'; printf 'e\\033[2J\\n' >&2");
    assert_eq!(ran.code, Some(0));
    for text in [&ran.out, &ran.err] {
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
    assert!(ran.out.contains("red") && ran.out.starts_with('a') && ran.out.ends_with("b\n"), "{:?}", ran.out);
}

#[test]
fn json_has_the_run_and_the_outcome() {
    let place = Place::quick();
    let ran = place.exec_with(&["--json"], &["sh", "-c", "echo out; echo err >&2; touch new; exit 3"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(3), ""));
    let json = ran.json();
    let executed = &json["executed"];
    assert_eq!((&executed["stdout"], &executed["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!(executed["outcome"]["ended"], json!({"exit": 3}));
    assert_eq!(executed["outcome"]["stopped_by"], "exit");
    assert_eq!(json["run"]["stop"], "finished");
    assert_eq!(json["run"]["changes"]["added"], json!(["new"]));
    assert_eq!(json["run"]["sandbox"]["tier"], "namespace");
    assert_eq!(json["run"]["run_id"], place.ids()[0].as_str());
}

/// R32: no shell reads them.
#[test]
fn r32_arguments_arrive_as_they_are() {
    let place = Place::quick();
    let odd = ["--", "-n", "--json", "a b", "x\ny", "$(id)", "`id`", "*", "", "é"];
    let mut argv = vec!["python3", "-c", "import sys; print(sys.argv[1:])"];
    argv.extend(odd);
    let ran = place.exec(&argv);
    assert_eq!(
        ran.out.trim(),
        "['--', '-n', '--json', 'a b', 'x\\ny', '$(id)', '`id`', '*', '', 'é']",
        "{ran:?}"
    );
}

#[test]
fn arguments_that_are_no_unicode_are_an_error_of_usage() {
    let place = Place::quick();
    let mut command = place.exec_command(&[], &["echo"]);
    command.arg(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff\xfe"));
    crate::place::ran(&mut command).assert_refused(2, "UTF-8");
    assert!(place.ids().is_empty());
}

#[test]
fn exec_without_a_command_is_an_error_of_usage() {
    let place = Place::quick();
    place.ran(["exec"]).assert_refused(2, "ARGV");
    place.ran(["exec", "--"]).assert_refused(2, "ARGV");
    // Without `--` it is not clear whose options are whose.
    place.ran(["exec", "ls"]).assert_refused(2, "ls");
}

/// R31: the operator's list counts for people too.
#[test]
fn r31_exec_keeps_to_the_operators_list() {
    let place = Place::quick();
    place.write("oubliette.toml", "[shell]\nallow = [\"ls\"]\n");
    assert_eq!(place.exec(&["ls"]).code, Some(0));
    place.exec(&["cat", "/etc/hostname"]).assert_refused(3, "refused");
    place.write("oubliette.toml", "[shell]\nenabled = false\n");
    place.exec(&["ls"]).assert_refused(3, "shell-off");
}
