//! The gate's second half with real sandboxes and few attacks: that programs are run, as whom, and that what gets
//! through is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use foundry::{
    BranchId, Ceiling, Foundry, GateRecord, GateVerdict, Refusal, Row, RowVerdict, Sandboxes, Terms,
    attacks_digest,
};
use policy::{Date, Deployment};
use runs::{Cancel, Corpus, Host};

use crate::place::{Place, Who};

/// Some of the attacks that come with the program.
pub(crate) fn shipped(names: &[&str]) -> Corpus {
    let mut corpus = Corpus::shipped().unwrap();
    corpus.keep(|id| names.contains(&id));
    assert_eq!(corpus.attacks().len(), names.len());
    corpus
}

/// An attack of a test's own, which the tier `namespace` must hold.
fn mine(program: &str) -> Corpus {
    let mut corpus = Corpus::shipped().unwrap();
    corpus.keep(|_| false);
    let text = format!(
        "[[attack]]\nid = 'mine'\ninvariant = 'nothing_outside'\nabout = 'x'\ncontrol = 'none: it is a test'\n\
         layers = {{ namespace = 'mount-namespace' }}\nprogram = '''\n{program}\n'''\n"
    );
    corpus.add("mine.toml", &text).unwrap();
    corpus
}

/// What a Foundry goes by under this deployment, whose text this is.
pub(crate) fn terms<'a>(deployment: &'a Deployment, text: &str, attacks: String) -> Terms<'a> {
    Terms {
        deployment,
        deployment_digest: runs::sha256(text.as_bytes()),
        waivers: None,
        attacks,
        today: Date::parse("2026-01-01").unwrap(),
    }
}

/// Gates a branch of a place, whose baseline is made from its `guild` where there is none, and looks at more with the
/// same terms. `meanwhile` hears of the folder, and what is tried next.
pub(crate) fn gated_and<T>(
    place: &Place,
    (id, corpus): (&str, &Corpus),
    meanwhile: &(dyn Fn(&Path, &str) + Sync),
    and: impl FnOnce(&Foundry, &BranchId, &Terms<'_>) -> T,
) -> (GateRecord, T) {
    let text = place.read("oubliette.toml");
    let deployment = Deployment::parse("oubliette.toml", &text).unwrap();
    let terms = terms(&deployment, &text, attacks_digest(corpus));
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let host = Host::start_from(&place.bin().join("oubliette")).unwrap();
    let (_keep, cancel) = Cancel::new();
    let arena = Sandboxes {
        host: &host,
        folder: folder.path(),
        corpus,
        cancel: &cancel,
        told: &|next| meanwhile(folder.path(), next),
        ceiling: Ceiling::default(),
    };
    let foundry = Foundry::make(&place.path("data")).unwrap();
    if !place.path("data/foundry/baseline").exists() {
        foundry.init(&place.path("guild"), &terms).unwrap();
    }
    let id = BranchId::parse(id).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let record = runtime.block_on(foundry.gate(&id, &terms, &arena)).unwrap();
    host.let_go();
    let and = and(&foundry, &id, &terms);
    (record, and)
}

pub(crate) fn gated(place: &Place, id: &str, corpus: &Corpus) -> GateRecord {
    gated_and(place, (id, corpus), &|_, _| {}, |_, _, _| ()).0
}

/// The row of an attack, of which there is one.
#[track_caller]
pub(crate) fn row<'a>(record: &'a GateRecord, attack: &str) -> &'a Row {
    let rows: Vec<&Row> =
        record.attacks.as_ref().unwrap().rows.iter().filter(|row| row.attack == attack).collect();
    assert_eq!(rows.len(), 1, "{attack}: {record:#?}");
    rows[0]
}

/// A place with a Guild and a branch of it that says something else.
fn place(deployment: &str, tools: &[&str]) -> Place {
    of_guild(Place::quick(), deployment, |place| place.guild(tools))
}

fn of_guild(place: Place, deployment: &str, guild: impl Fn(&Place)) -> Place {
    let tier = place.tier;
    place
        .write("oubliette.toml", format!("[isolation]\ntier = \"{tier}\"\nfloor = \"{tier}\"\n{deployment}"));
    guild(&place);
    for name in ["guild.toml", "prompts/worker.md"] {
        place.write(
            &format!("data/foundry/branches/b/guild/{name}"),
            place.read(Path::new("guild").join(name)),
        );
    }
    place.write("data/foundry/branches/b/guild/prompts/worker.md", "You do it well.");
    fs::set_permissions(place.path("data/foundry"), PermissionsExt::from_mode(0o700)).unwrap();
    place
}

/// R61: without the programs of `prove` there would be no such row, and refused by a name it would be no `held`.
#[test]
fn attacks_that_are_programs_run_as_a_role_of_the_branch_and_are_held() {
    let corpus = shipped(&["host-file-by-name", "host-file-by-dots"]);
    for tool in ["run_command", "run_shell"] {
        let record = gated(&place("", &["read_file", tool, "finish"]), "b", &corpus);
        assert_eq!(record.verdict, GateVerdict::Passed, "{record:#?}");
        for attack in ["host-file-by-name", "host-file-by-dots"] {
            let row = row(&record, attack);
            let told = (row.role.as_str(), row.verdict, row.layer.as_str());
            assert_eq!(told, ("worker", RowVerdict::Held, "mount-namespace"), "{row:?}");
        }
    }
}

/// The same on the other tiers, of which each has a layer of its own for it.
fn held_on(tier: &'static str) {
    let guild = |place: &Place| place.guild(&["read_file", "run_command", "finish"]);
    let place = of_guild(Place::new(tier, Who::Own), "", guild);
    let record = gated(&place, "b", &shipped(&["host-file-by-name"]));
    assert_eq!(record.verdict, GateVerdict::Passed, "{record:#?}");
    assert_eq!(record.attacks.as_ref().unwrap().tier.as_str(), tier);
    for attack in ["host-file-by-name", "tool:run_command", "tool:read_file"] {
        let row = row(&record, attack);
        assert_eq!((row.role.as_str(), row.verdict), ("worker", RowVerdict::Held), "{row:?}");
    }
}

#[test]
fn an_attack_that_is_a_program_is_held_in_gvisor() {
    held_on("gvisor");
}

#[test]
fn an_attack_that_is_a_program_is_held_in_confined() {
    held_on("confined");
}

/// Bounds that no sandbox could start with are no way around the attacks, nor an error of the machine.
#[test]
fn a_branch_whose_bounds_are_too_small_to_run_is_attacked_all_the_same() {
    let place = of_guild(Place::quick(), "", |place| {
        place.guild(&["run_command", "finish"]);
        let bounds = "\n[limits]\nmemory = \"1MiB\"\nprocesses = 1\ntimeout = \"1s\"\noutput = \"1KiB\"\n";
        place.write("guild/guild.toml", place.read("guild/guild.toml") + bounds);
    });
    let record = gated(&place, "b", &shipped(&["host-file-by-name"]));
    assert_eq!(record.verdict, GateVerdict::Passed, "{record:#?}");
    assert_eq!(row(&record, "tool:run_command").verdict, RowVerdict::Held);
}

/// What has got what it wanted is told, though all was ended before the attacks were done.
#[test]
fn a_program_that_got_through_is_told_though_the_attacks_came_to_no_end() {
    let mut corpus = mine("attempt(\"its own workspace\", os.getcwd)");
    let next = "[[attack]]\nid = 'next'\ninvariant = 'nothing_outside'\nabout = 'x'\ncontrol = 'none: it is a test'\n\
        layers = { namespace = 'mount-namespace' }\nprogram = '''\nimport time\ntime.sleep(30)\n'''\n";
    corpus.add("next.toml", next).unwrap();
    // More than the ceiling lets lie there, from when the second is made.
    let fill = |folder: &Path, next: &str| {
        if next == "next" {
            let file = fs::File::create(folder.join("much")).unwrap();
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 600 << 20).unwrap();
        }
    };
    let (record, ()) = gated_and(&place("", &["run_command", "finish"]), ("b", &corpus), &fill, |_, _, _| ());
    assert_eq!(record.verdict, GateVerdict::Broken, "{record:#?}");
    assert_eq!(row(&record, "mine").verdict, RowVerdict::Broken);
    assert!(row(&record, "ceiling").detail.contains("of the disk"), "{record:#?}");
}

/// A list of programs is no boundary, so it is none for the attacks: they run, and the walls hold them.
#[test]
fn a_deployment_that_refuses_the_interpreter_by_name_has_its_walls_attacked_all_the_same() {
    let corpus = shipped(&["host-file-by-name"]);
    for lists in ["deny = [\"python3\"]", "allow = [\"git\"]"] {
        let place = place(&format!("[shell]\n{lists}\n"), &["run_command", "finish"]);
        let record = gated(&place, "b", &corpus);
        assert_eq!(record.verdict, GateVerdict::Passed, "{record:#?}");
        assert_eq!(row(&record, "host-file-by-name").verdict, RowVerdict::Held);
    }
    // Who may start nothing at all is asked in vain, and there is nothing more to show.
    let record = gated(&place("[shell]\nenabled = false\n", &["run_command", "finish"]), "b", &corpus);
    assert_eq!(record.verdict, GateVerdict::Passed, "{record:#?}");
    assert_eq!(row(&record, "host-file-by-name").verdict, RowVerdict::Refused);
}

/// A gate that could not see a hole would show nothing: an attack that does get what it wants is told, and nothing that it
/// was made under is promoted.
#[test]
fn r61_an_attack_that_gets_what_it_wants_is_broken_and_the_branch_is_not_promoted() {
    let corpus = mine("attempt(\"its own workspace\", os.getcwd)");
    let place = place("", &["run_command", "finish"]);
    let promote = |foundry: &Foundry, id: &BranchId, terms: &Terms<'_>| {
        foundry.promote(id, terms, &|_| {}).map_err(|e| e.refusal())
    };
    let (record, promoted) = gated_and(&place, ("b", &corpus), &|_, _| {}, promote);
    assert_eq!(record.verdict, GateVerdict::Broken, "{record:#?}");
    assert!(record.reason.contains("mine"), "{}", record.reason);
    let row = row(&record, "mine");
    assert_eq!((row.role.as_str(), row.verdict), ("worker", RowVerdict::Broken), "{row:?}");
    assert_eq!(promoted.unwrap_err(), Some(Refusal::NotPassed));
}

/// What is seen outside counts, whatever a guest says of itself: here somebody writes to the canary while a role, or a
/// program, is played, as one would that had found a way out.
#[test]
fn a_canary_that_is_changed_meanwhile_is_broken_though_every_try_was_refused() {
    let corpus = shipped(&["host-file-by-name"]);
    for (when, canary, attack) in [
        ("as worker", "canary-roles", "tool:outside"),
        ("host-file-by-name", "canary-namespace", "host-file-by-name"),
    ] {
        let leak = |folder: &Path, next: &str| {
            if next == when {
                fs::write(folder.join(canary).join("canary"), "broken").unwrap();
            }
        };
        let place = place("", &["run_command", "finish"]);
        let (record, ()) = gated_and(&place, ("b", &corpus), &leak, |_, _, _| ());
        assert_eq!(record.verdict, GateVerdict::Broken, "{record:#?}");
        let row = row(&record, attack);
        assert_eq!((row.role.as_str(), row.verdict), ("worker", RowVerdict::Broken), "{row:?}");
        assert!(row.detail.contains("the folder of the canary"), "{row:?}");
    }
}

/// That nothing came out is no proof where nothing was tried.
#[test]
fn a_program_that_says_nothing_proves_nothing() {
    let record = gated(&place("", &["run_command", "finish"]), "b", &mine("pass"));
    assert_eq!(record.verdict, GateVerdict::Unproven, "{record:#?}");
    assert_eq!(row(&record, "mine").verdict, RowVerdict::Error);
}
