//! The operator's path through the commands, on the real binary.

use std::process::Output;

use serde_json::Value;

use crate::support::binary::{S1, Site, assert_contiguous, get, text, until};

const RULE: &str = "netops/s1-syslog/rules/1-2.json";

fn digests(batch: &Value) -> &Value {
    let digests = &batch["output_digests"];
    assert!(digests["s1_results"].is_string(), "{batch}");
    digests
}

/// Everything that the command has said.
fn all(output: &Output) -> String {
    text(&output.stdout) + text(&output.stderr).as_str()
}

/// Commands that come while a host starts wait for it: none opens the folder under its hands, and none is turned away.
#[test]
fn commands_wait_for_a_host_that_starts() {
    let site = Site::new("500ms", "");
    let mut host = site.run();
    host.address();
    let mut last = site.batch_after(1);
    for killed in [true, false, true] {
        if killed {
            host.kill();
        } else {
            assert!(host.stop().success());
        }
        host = site.run();
        // From before it holds the folder until after it listens.
        let live: Vec<bool> = (0..8).map(|_| site.json(&["status"]).remove(0)["live"].as_bool().unwrap()).collect();
        // One that came before the host had the folder has answered from it, and the host has waited for that.
        assert!(live.windows(2).all(|w| w[0] <= w[1]) && live[7], "{live:?}: {}", site.told());
        assert!(host.child.try_wait().unwrap().is_none(), "{}", site.told());
        last = site.batch_after(last);
    }
}

#[test]
fn an_operator_looks_asks_replays_and_sees_what_was_refused() {
    let site = Site::new("500ms", "");
    let mut host = site.run();
    let address = host.address();
    site.batch_after(1);
    let s1 = until("the sinks have drained", || {
        Some(site.s1()).filter(|s1| s1["sinks"].as_array().unwrap().iter().all(|s| s["drained_to"].is_u64()))
    });
    assert_eq!(
        (&s1["tenant"], &s1["scenario"], &s1["state"]),
        (&"netops".into(), &"s1-syslog".into(), &"running".into())
    );
    assert_eq!((&s1["pending"], &s1["rejected"]), (&Value::Null, &Value::Null));
    for digest in [&s1["ruleset"], &s1["plugin"]["digest"], &s1["rules"][0]["digest"], &s1["last_batch"]["ruleset"]] {
        assert_eq!(digest.as_str().unwrap().len(), 64, "{s1}");
    }
    assert_eq!((&s1["plugin"]["name"], &s1["plugin"]["version"]), (&"s1-syslog".into(), &"0.1.0".into()));
    assert_eq!([&s1["rules"][0]["file"], &s1["rules"][1]["file"]], ["rules/1-1.json", "rules/1-2.json"]);
    for number in ["id", "rows_in", "alarms"] {
        assert!(s1["last_batch"][number].is_u64(), "{number}: {s1}");
    }
    assert!(s1["last_batch"]["time"].is_string() && s1["last_batch"]["duration_ms"]["total"].as_f64().unwrap() > 0.0);
    assert!(s1["skipped_ticks"].is_u64());
    let sinks = s1["sinks"].as_array().unwrap();
    assert_eq!(
        sinks.iter().map(|s| s["sink"].as_str().unwrap()).collect::<Vec<_>>(),
        ["alarm_events", "alarms", "s1_results"]
    );
    assert!(sinks.iter().all(|s| s["drained_to"].is_u64() && s["behind"].is_u64()), "{s1}");
    let people = all(&site.ask(&["status"]));
    assert!(people.contains("netops/s1-syslog") && people.contains("running"), "{people}");

    let opened = site.json(&["tail", "--once"]);
    assert_eq!(opened.iter().map(|e| e["change"].as_str().unwrap()).collect::<Vec<_>>(), ["opened", "opened"]);
    assert_eq!(site.json(&["tail", "--from-start", "--for", "300ms"]), opened);
    assert!(all(&site.ask(&["tail", "--once"])).contains("CRITICAL"));

    until("the results are in their table", || {
        (site.query("select distinct router_ip from s1_results").len() == 2).then_some(())
    });
    assert_eq!(site.query("select * from current_alarms").len(), 2);
    let wrong = site.ask(&["query", "select nothing from nowhere"]);
    assert!(wrong.status.code() == Some(1) && all(&wrong).contains("nowhere"), "{}", all(&wrong));

    let batches = site.json(&["ledger", S1]);
    assert_contiguous(&batches);
    // One stream: its rows are the batch's, counted, and far fewer than its offsets, which have room for a million a tick.
    for batch in &batches {
        assert_eq!(batch["sources"][0]["numInputRows"], batch["numInputRows"]);
    }
    assert!(batches[0]["numInputRows"].as_u64().unwrap() > 0);
    assert_eq!(site.json(&["ledger", S1, "--after", "1", "--limit", "1"])[0]["batchId"], 2);
    let newest = site.json(&["ledger", S1, "--limit", "2"]);
    let ids: Vec<u64> = newest.iter().map(|batch| batch["batchId"].as_u64().unwrap()).collect();
    assert!(ids.len() == 2 && ids[1] == ids[0] + 1, "{ids:?}");
    assert!(Some(ids[1]) >= batches[batches.len() - 1]["batchId"].as_u64(), "{ids:?}");

    // Whatever is asked of a scenario that nobody knows, the answer is the same.
    let (from, to) = (["--from", "2026-01-30T00:00"], ["--to", "2026-01-31 00:00:00"]);
    for command in [
        &["review", "netops/nothing"][..],
        &["review", "netops/nothing", "--at", "2026-01-30T00:00"],
        &["batch", "netops/nothing", "--at", "2026-01-30T00:00Z", "--latest"],
        &["ledger", "netops/nothing"],
        &["ledger", "netops/nothing", "--limit", "3"],
        &["history", "netops/nothing"],
        &["rollback", "netops/nothing"],
        &["rollback", "netops/nothing", "0123abcd"],
        &["unpin", "netops/nothing"],
        &["forget", "netops/nothing"],
        &["resume", "netops/nothing"],
        &["pause", "netops/nothing"],
        &["backfill", "netops/nothing", from[0], from[1], to[0], to[1]],
    ] {
        let refused = site.ask(command);
        let fix = "       fix: correct the name; `weir status` lists all scenarios\n";
        let told = format!("error: there is no scenario netops/nothing\n{fix}");
        assert_eq!((refused.status.code(), all(&refused)), (Some(4), told), "{command:?}");
    }
    let first = site.json(&["history", S1]);
    assert_eq!((first.len(), &first[0]["event"], &first[0]["digest"]), (1, &"active".into(), &s1["ruleset"]));

    let at = batches[0]["timestamp"].as_str().unwrap();
    let beside = site.json(&["batch", S1, "--at", at]).remove(0);
    assert_eq!((&beside["replayed"], &beside["outcome"]), (&1.into(), &"judged".into()));

    let reviewed = site.json(&["review", S1, "--at", at]).remove(0);
    assert_eq!((&reviewed["replayed"], &reviewed["live"]["agrees"]), (&1.into(), &true.into()));
    assert_eq!(reviewed["calls"][1]["query"], "error_counts");
    assert!(all(&site.ask(&["review", S1])).contains("the live batch came to the same"));

    for (path, shows) in [
        ("/healthz", ""),
        ("/readyz", "\"ready\":true"),
        ("/metrics", "weir_"),
        ("/api/v1/alarms", "Edge-RouterA-034"),
        ("/api/v1/status", "s1-syslog"),
    ] {
        let (code, body) = get(&address, path);
        assert!(code == 200 && body.contains(shows), "{path}: {code} {body}");
    }
    assert_eq!(get(&address, "/nothing").0, 404);

    // A rule that is no JSON: it is refused, with its file, and the last good one goes on.
    site.edit(RULE, "\"nodes\"", "nodes");
    let refused = until("the broken rule is refused", || {
        let s1 = site.s1();
        (!s1["rejected"].is_null()).then_some(s1)
    });
    let notice = &refused["rejected"];
    assert!(notice["file"].as_str().unwrap().ends_with("rules/1-2.json"), "{notice}");
    assert!(!notice["reason"].as_str().unwrap().is_empty());
    assert_eq!(refused["ruleset"], s1["ruleset"]);
    site.batch_after(refused["last_batch"]["id"].as_u64().unwrap());
    assert!(all(&site.ask(&["status"])).contains("rules/1-2.json"));
    let check = site.command(&["check", S1]).arg("--store").arg(site.store()).output().unwrap();
    assert!(check.status.code() == Some(1) && all(&check).contains("rules/1-2.json"), "{}", all(&check));
    site.edit(RULE, "nodes:", "\"nodes\":");

    assert_eq!(host.stop().code(), Some(0), "{}", site.told());
    // Nobody runs: the commands open the folder themselves.
    let alone = site.json(&["batch", S1, "--at", at]).remove(0);
    assert_eq!(digests(&alone), digests(&beside), "the same batch, beside the host and without one");
    assert_eq!(alone["events"], beside["events"]);
    let mut again = site.json(&["review", S1, "--at", at]).remove(0);
    again["usage"].clone_from(&reviewed["usage"]);
    assert_eq!(again, reviewed, "and looked at from the inside");
    assert_eq!(site.json(&["tail", "--once"])[..2], opened[..]);
}

#[test]
fn a_ruleset_is_rolled_back_and_unpinned() {
    let site = Site::new("500ms", "");
    let mut host = site.run();
    host.address();
    site.batch_after(0);
    let first = site.s1()["ruleset"].clone();
    site.edit("netops/s1-syslog/scenario.toml", "clear_after = 3", "clear_after = 5");
    let active = |wished: &dyn Fn(&Value) -> bool| {
        until("another ruleset is active", || {
            Some(site.s1()).filter(|s| wished(&s["ruleset"]) && s["pending"].is_null())
        })
    };
    let second = active(&|now| *now != first);
    let refused = site.ask(&["rollback", S1, "0123456789"]);
    assert_eq!(refused.status.code(), Some(4), "{}", all(&refused));

    let pinned = site.json(&["rollback", S1]).remove(0);
    assert_eq!(pinned["pinned"], first);
    let back = active(&|now| *now == first);
    assert_eq!(back["pinned"], first);
    until("a batch runs on the pinned ruleset", || (site.s1()["last_batch"]["ruleset"] == first).then_some(()));
    site.json(&["unpin", S1]);
    let again = active(&|now| *now == second["ruleset"]);
    assert_eq!(again["pinned"], Value::Null);
    let twice = site.ask(&["unpin", S1]);
    assert!(twice.status.success() && all(&twice).contains("was not pinned"), "{}", all(&twice));
    let events: Vec<Value> = site.json(&["history", S1]).iter().map(|e| e["event"].clone()).collect();
    assert!(events.contains(&"pinned".into()) && events.contains(&"unpinned".into()), "{events:?}");
    assert_eq!(host.stop().code(), Some(0), "{}", site.told());
}

#[test]
fn check_names_file_field_and_fix() {
    let site = Site::new("500ms", "");
    let check = |args: &[&str]| site.command(&["check"]).args(args).arg("--store").arg(site.store()).output().unwrap();
    let good = check(&[]);
    assert_eq!(good.status.code(), Some(0), "{}", all(&good));
    site.edit("netops/s1-syslog/scenario.toml", "clear_after = 3", "clear_afer = 3");
    let bad = check(&["--json"]);
    assert_eq!(bad.status.code(), Some(1), "{}", all(&bad));
    let told: Value = serde_json::from_slice(&bad.stdout).unwrap();
    assert_eq!(told["ok"], false);
    let problems: Vec<&Value> =
        told["checked"].as_array().unwrap().iter().flat_map(|c| c["problems"].as_array().unwrap()).collect();
    assert_eq!(problems.len(), 1, "{told}");
    assert_eq!(problems[0]["file"], "netops/s1-syslog/scenario.toml");
    assert!(problems[0]["field"].as_str().unwrap().contains("clear_afer"), "{told}");
    assert!(problems[0]["fix"].as_str().unwrap().contains("clear_after"), "{told}");
    let people = all(&check(&[S1]));
    assert!(["scenario.toml", "clear_afer", "fix:"].iter().all(|w| people.contains(w)), "{people}");
    assert_eq!(check(&["netops/nothing"]).status.code(), Some(4));
}

#[test]
fn a_host_refuses_an_open_address_without_a_token_and_a_folder_that_is_held() {
    let site = Site::new("500ms", "");
    let open = site.run_command(&["--listen", "0.0.0.0:0"]).output().unwrap();
    assert!(open.status.code() == Some(2) && all(&open).contains("token"), "{}", all(&open));
    assert!(!site.data.exists(), "nothing was done");
    let mut host = site.run();
    host.address();
    let second = site.run_command(&["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(second.status.code(), Some(3), "{}", all(&second));
    assert!(all(&second).contains("another host holds the data folder"), "{}", all(&second));
    site.batch_after(0);
    // Its socket is lost: who it is can still be told, and what to do about it.
    std::fs::remove_file(site.data.join("host.sock")).unwrap();
    let second = site.run_command(&["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(second.status.code(), Some(3), "{}", all(&second));
    let told = all(&second);
    let words =
        ["another host holds the data folder", "host.sock", "socket was lost", &format!("kill {}", host.child.id())];
    assert!(words.iter().all(|word| told.contains(word)), "{told}");
    assert_eq!(host.stop().code(), Some(0), "{}", site.told());
}

#[test]
fn once_works_off_what_there_is_and_ends() {
    let site = Site::new("500ms", "");
    for runs in 1..=2 {
        let done = site.run_command(&["--once"]).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", all(&done));
        let batches = site.json(&["ledger", S1]);
        assert_contiguous(&batches);
        assert!(batches.len() >= runs, "{batches:?}");
        let behind = &site.s1()["sinks"];
        assert!(behind.as_array().unwrap().iter().all(|s| s["behind"] == 0), "{behind}");
    }
    assert!(site.query("select * from s1_results").len() >= 4);
}
