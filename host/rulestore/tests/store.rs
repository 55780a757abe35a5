//! What a folder's content comes to: pending, rejected, active, pinned, removed, and all of it over a restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use support::{Bench, MANIFEST, SETTLE, STREAM, files_below, id};
use weir_model::FaultKind;
use weir_model::port::{History, RuleStore};
use weir_rulestore::Keep;

fn running() -> Bench {
    let mut bench = Bench::new();
    bench.open();
    bench.settle();
    assert_eq!(bench.rule(), "rule 0");
    bench
}

#[test]
fn content_counts_when_it_is_stable() {
    let mut bench = Bench::new();
    bench.open();
    assert!(bench.view().active.is_none());
    assert!(bench.view().pending.expect("pending").reason.starts_with("it changed"));
    bench.settle();
    assert!(bench.view().pending.is_none());
    let before = bench.store().epoch();
    bench.write("t/a/rules/r.json", "rule 1");
    bench.look();
    assert_eq!(bench.rule(), "rule 0");
    bench.clock.advance(SETTLE / 2);
    bench.write("t/a/rules/r.json", "rule 2");
    bench.look();
    bench.clock.advance(SETTLE / 2);
    bench.look();
    assert_eq!(bench.rule(), "rule 0", "rule 2 is not stable yet, rule 1 never was");
    bench.clock.advance(SETTLE / 2);
    bench.look();
    assert_eq!(bench.rule(), "rule 2");
    assert!(bench.store().epoch() > before);
    let events = bench.store().history(&id()).unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!((events[0].event.as_str(), events[0].reason.as_str()), ("active", "changed rules/r.json"));
    assert_eq!(events[0].digest, bench.active());
}

#[test]
fn identical_content_and_a_way_back_are_not_admitted_again() {
    let bench = running();
    let first = bench.view().active.unwrap();
    assert_eq!(bench.admitted(), 1);
    bench.write("t/a/rules/r.json", "rule 0");
    bench.settle();
    bench.write("t/a/rules/r.json", "rule 1");
    bench.settle();
    assert_eq!(bench.admitted(), 2);
    bench.write("t/a/rules/r.json", "rule 0");
    bench.settle();
    assert_eq!(bench.admitted(), 2);
    assert!(Arc::ptr_eq(&first, &bench.view().active.unwrap()));
    assert!(Arc::ptr_eq(&first, &bench.store().stored(&id(), first.ruleset.digest).unwrap()));
}

#[test]
fn bad_content_is_rejected_and_the_last_good_one_runs_also_after_a_restart() {
    let mut bench = running();
    let good = bench.active();
    bench.write("t/a/rules/r.json", "BAD");
    bench.settle();
    let view = bench.view();
    let notice = view.rejected.expect("rejected");
    assert_eq!(
        (notice.file.as_str(), notice.reason.as_str()),
        ("t/a/rules/r.json", "text: it says BAD; write something else")
    );
    assert_eq!((bench.active(), view.pending), (good, None));
    let admitted = bench.admitted();
    bench.settle();
    bench.settle();
    assert_eq!(bench.admitted(), admitted, "bad content is judged once");
    let since = bench.view().active_since;

    bench.open();
    bench.settle();
    assert_eq!(bench.active(), good);
    assert_eq!(bench.view().active_since, since);
    assert!(bench.view().rejected.is_some());
    bench.write("t/a/rules/r.json", "rule 9");
    bench.settle();
    assert_eq!((bench.rule().as_str(), bench.view().rejected), ("rule 9", None));
    let events: Vec<String> = bench.store().history(&id()).unwrap().into_iter().map(|e| e.event).collect();
    assert_eq!(events, ["active", "rejected", "active"], "a restart is no event");
}

#[test]
fn what_ran_before_a_restart_runs_at_the_first_look() {
    let mut bench = running();
    bench.open();
    assert_eq!(bench.rule(), "rule 0", "it was stable before, so it need not settle");
}

#[test]
fn half_written_content_is_held_for_a_settle_time_more() {
    let bench = running();
    bench.write("t/a/plugins/p.wasm", "CUT");
    bench.settle();
    let view = bench.view();
    assert!(view.rejected.is_none());
    assert!(view.pending.expect("held").reason.starts_with("it may not be complete: it ends early"));
    bench.clock.advance(SETTLE);
    bench.look();
    assert!(bench.view().rejected.is_some() && bench.view().pending.is_none());
    bench.write("t/a/plugins/p.wasm", "whole");
    bench.settle();
    assert!(bench.view().rejected.is_none());
}

#[test]
fn one_bad_tenant_does_not_touch_another() {
    let mut bench = Bench::new();
    bench.write("u/tenant.toml", "[limits]\nalarmz = 1\n");
    for file in ["streams/s.toml", "a/scenario.toml", "a/plugins/p.wasm", "a/rules/r.json"] {
        let text = fs::read_to_string(bench.path(&format!("t/{file}"))).unwrap();
        bench.write(&format!("u/{file}"), &text);
    }
    bench.open();
    bench.settle();
    assert_eq!(bench.rule(), "rule 0");
    let other = bench.store().scenario(&"u/a".parse().unwrap()).unwrap();
    assert_eq!(other.rejected.expect("rejected").file, "u/tenant.toml");
}

#[test]
fn a_panic_while_making_ready_is_the_rulesets_problem() {
    let bench = running();
    bench.write("t/a/rules/r.json", "PANIC");
    bench.settle();
    assert!(bench.view().rejected.is_some());
    bench.write("t/a/rules/r.json", "rule 1");
    bench.settle();
    assert_eq!(bench.rule(), "rule 1");
}

#[test]
fn a_rollback_holds_until_the_folder_changes() {
    let mut bench = running();
    let first = bench.active();
    bench.write("t/a/rules/r.json", "rule 1");
    bench.settle();
    assert_eq!(bench.store().rollback(&id(), None).unwrap(), first);
    bench.settle();
    assert_eq!((bench.active(), bench.view().pinned), (first, Some(first)));
    bench.open();
    bench.settle();
    assert_eq!((bench.active(), bench.view().pinned), (first, Some(first)), "a pin outlives a restart");
    bench.write("t/a/rules/r.json", "rule 2");
    bench.settle();
    assert_eq!((bench.rule().as_str(), bench.view().pinned), ("rule 2", None));
    let events: Vec<String> = bench.store().history(&id()).unwrap().into_iter().map(|e| e.event).collect();
    assert_eq!(events, ["active", "unpinned", "pinned", "active", "active"]);
}

#[test]
fn an_unpinned_scenario_runs_what_its_folder_holds() {
    let bench = running();
    bench.write("t/a/rules/r.json", "rule 1");
    bench.settle();
    bench.store().rollback(&id(), None).unwrap();
    assert_eq!(bench.rule(), "rule 0");
    bench.store().unpin(&id()).unwrap();
    bench.settle();
    assert_eq!((bench.rule().as_str(), bench.view().pinned), ("rule 1", None));
    let events = bench.store().history(&id()).unwrap().len();
    bench.store().unpin(&id()).unwrap();
    assert_eq!(bench.store().history(&id()).unwrap().len(), events, "nothing is pinned any more, and nothing happens");
    assert_eq!(
        bench.store().rollback(&id(), Some(weir_model::Digest::of(b"x"))).unwrap_err().kind,
        FaultKind::NotReplayable
    );
}

#[test]
fn a_removed_folder_stops_the_scenario_and_keeps_its_past() {
    let bench = running();
    let digest = bench.active();
    let away = bench.dir.path().join("away");
    fs::rename(bench.path("t/a"), &away).unwrap();
    bench.look();
    assert!(!bench.view().removed, "a folder that is replaced is away for a moment");
    bench.clock.advance(SETTLE);
    bench.look();
    assert!(bench.view().removed && bench.view().active.is_none());
    assert_eq!(bench.store().stored(&id(), digest).unwrap().ruleset.digest, digest);
    fs::rename(&away, bench.path("t/a")).unwrap();
    bench.look();
    assert_eq!((bench.active(), bench.view().removed), (digest, false));
    assert!(bench.store().forget(&id()).is_err(), "its folder is there");
    fs::remove_dir_all(bench.path("t/a")).unwrap();
    bench.settle();
    bench.store().forget(&id()).unwrap();
    assert!(bench.store().scenario(&id()).is_none());
    assert!(!bench.history().join(digest.to_string()).exists());
}

#[test]
fn a_bad_stream_keeps_its_last_good_definition_also_over_a_restart() {
    let mut bench = running();
    let good = bench.stream();
    bench.write("t/streams/s.toml", &format!("# a comment\n{STREAM}"));
    bench.settle();
    assert_eq!(bench.stream().digest, good.digest, "a comment makes no other stream");
    bench.write("t/streams/s.toml", &STREAM.replace("'t'", "'x'"));
    bench.settle();
    assert_eq!(bench.stream().def, good.def);
    assert_eq!(bench.stream().rejected.expect("rejected").file, "t/streams/s.toml");
    bench.open();
    bench.settle();
    let rejected = bench.stream().rejected.expect("rejected");
    assert_eq!((bench.stream().def, bench.stream().digest), (good.def.clone(), good.digest));
    // Its rows could never go to a table.
    bench.write("t/streams/s.toml", &STREAM.replace("[schema]\n", "[schema]\n\"a b\" = \"text\"\n"));
    bench.settle();
    let unfit = bench.stream().rejected.expect("rejected");
    assert!(unfit.reason.contains("schema.a b: tables cannot have a column of this name"), "{}", unfit.reason);
    assert!(!rejected.reason.contains("a b"), "{}", rejected.reason);
    assert_eq!((bench.stream().def, bench.stream().digest), (good.def, good.digest));
    assert!(bench.stream().rejected.is_some());
    assert_eq!(bench.rule(), "rule 0", "the scenario runs on what was good");
}

#[test]
fn a_stream_stays_while_a_running_scenario_reads_it() {
    let bench = running();
    fs::remove_file(bench.path("t/streams/s.toml")).unwrap();
    bench.settle();
    assert!(bench.stream().def.is_some() && bench.stream().rejected.is_some());
    fs::remove_dir_all(bench.path("t/a")).unwrap();
    bench.settle();
    bench.settle();
    assert!(bench.store().streams().is_empty());
}

#[test]
fn links_out_of_the_tenant_and_large_files_are_refused() {
    let bench = running();
    bench.write("u/secret.json", "another tenant's");
    std::os::unix::fs::symlink(bench.path("u/secret.json"), bench.path("t/a/rules/stolen.json")).unwrap();
    bench.settle();
    let notice = bench.view().rejected.expect("rejected");
    assert_eq!((notice.file.as_str(), notice.problems.len()), ("t/a/rules/stolen.json", 1));
    fs::remove_file(bench.path("t/a/rules/stolen.json")).unwrap();
    bench.write("t/a/rules/big.json", &"x".repeat((1 << 20) + 1));
    bench.settle();
    let reason = bench.view().rejected.expect("rejected").reason;
    assert_eq!(reason, "it has 1048577 bytes, allowed are 1048576; make it smaller, or ask for a higher rule_bytes");
    fs::remove_file(bench.path("t/a/rules/big.json")).unwrap();
    std::os::unix::fs::symlink(bench.path("t/a/rules/r.json"), bench.path("t/a/rules/alias.json")).unwrap();
    for dropping in [".r.json.swp", "r.json~", "4913", "r.json.tmp"] {
        bench.write(&format!("t/a/rules/{dropping}"), "BAD");
    }
    bench.settle();
    let active = bench.view().active.unwrap();
    let files: Vec<&str> =
        active.ruleset.files.keys().filter(|path| path.starts_with("rules/")).map(String::as_str).collect();
    assert_eq!(files, ["rules/alias.json", "rules/r.json"], "a link inside is a file, droppings are none");
}

#[test]
fn a_damaged_history_is_noticed() {
    let mut bench = running();
    let digest = bench.active();
    bench.write("t/a/rules/r.json", "rule 1");
    bench.settle();
    fs::write(bench.history().join(digest.to_string()).join("t/a/rules/r.json"), "rule X").unwrap();
    bench.open();
    bench.settle();
    let fault = bench.store().stored(&id(), digest).unwrap_err();
    assert_eq!(fault.kind, FaultKind::NotReplayable);
    assert!(fault.message.contains("rules/r.json is not what it was"), "{fault}");
    assert_eq!(bench.rule(), "rule 1");
    let record = bench.history().join("scenarios/t/a.json");
    fs::write(&record, "{").unwrap();
    bench.write("t/a/rules/r.json", "BAD");
    bench.open();
    bench.settle();
    assert_eq!(bench.rule(), "rule 1", "the record is made anew from the events");
}

#[test]
fn an_unreadable_store_is_not_an_empty_one() {
    let bench = running();
    fs::rename(bench.path(""), bench.dir.path().join("elsewhere")).unwrap();
    bench.settle();
    bench.settle();
    assert!(!bench.view().removed && bench.view().active.is_some());
}

#[test]
fn a_thousand_edits_leave_a_bounded_history() {
    let mut bench = Bench::new();
    bench.keep = Keep { digests: 5, horizon: Duration::from_secs(60) };
    bench.open();
    bench.settle();
    let first = bench.active();
    for n in 1..=1000 {
        bench.write("t/a/rules/r.json", &format!("rule {n}"));
        bench.settle();
        assert_eq!(bench.rule(), format!("rule {n}"));
    }
    assert_eq!(bench.admitted(), 1001);
    // 60 s are 30 edits of 2 s; five files, and a few records beside them.
    assert!(files_below(&bench.history()) < 40 * 5, "{} files", files_below(&bench.history()));
    assert_eq!(bench.store().stored(&id(), first).unwrap_err().kind, FaultKind::NotReplayable);
    let previous = bench.store().rollback(&id(), None).unwrap();
    assert_ne!(previous, first);
    assert_eq!(bench.rule(), "rule 999");
}

#[test]
fn check_names_every_subject_without_running_it() {
    let bench = running();
    bench.write("t/b/scenario.toml", &MANIFEST.replace("[inputs.s]", "[inputs.z]"));
    let all: Vec<(String, usize)> =
        bench.store().check(None).into_iter().map(|(s, p)| (s.to_string(), p.len())).collect();
    let expected = [("tenant t", 0), ("stream t/s", 0), ("scenario t/a", 0), ("scenario t/b", 3)];
    assert_eq!(all, expected.map(|(s, n)| (s.to_owned(), n)));
    assert!(bench.store().check(Some(&"t/zz".parse().unwrap())).is_empty(), "who asks says that it is not there");
}
