//! The commands in docs/, run as they stand there: in order, on a copy of the repository, beside a host on the example.
//!
//! A block of `sh` is run by a shell and has to end with 0. What stands in a comment before it says more:
//! `<!-- until: TEXT -->` repeats it until it prints the text, `<!-- exit: N -->` expects another code,
//! `<!-- by hand -->` leaves it out: the block that starts the host, which this test does itself.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_model::FaultKind;
use weir_model::review::Reason;

use crate::support::binary::{pause, text, weir};
use crate::support::example::{assemble, repository};

/// How long a block may need until it shows what it is to show.
const PATIENCE: Duration = Duration::from_secs(150);

#[derive(Debug, Default, Clone, PartialEq)]
struct Block {
    line: usize,
    script: String,
    until: Option<String>,
    exit: i32,
    by_hand: bool,
}

/// The blocks of a document. A directive that is none, or one without a block, is an error of the document.
fn blocks(document: &str) -> Vec<Block> {
    let mut out = Vec::new();
    let mut next = Block::default();
    let mut inside: Option<(bool, Block)> = None;
    for (line, number) in document.lines().zip(1..) {
        if let Some((ours, block)) = &mut inside {
            if line.trim_end() == "```" {
                if *ours {
                    out.push(block.clone());
                }
                inside = None;
            } else {
                block.script.push_str(line);
                block.script.push('\n');
            }
        } else if let Some(language) = line.strip_prefix("```") {
            let ours = language == "sh";
            assert!(ours || next == Block::default(), "line {number}: the directive before it is about no block of sh");
            inside = Some((ours, Block { line: number, ..std::mem::take(&mut next) }));
        } else if let Some(directive) = line.strip_prefix("<!-- ").and_then(|l| l.strip_suffix(" -->")) {
            match directive.split_once(": ") {
                Some(("until", wanted)) => next.until = Some(wanted.to_owned()),
                Some(("exit", code)) => next.exit = code.parse().unwrap(),
                None if directive == "by hand" => next.by_hand = true,
                _ => panic!("line {number}: '{directive}' is no directive"),
            }
        }
    }
    assert!(inside.is_none() && next == Block::default(), "the document ends in the middle of a block");
    out
}

#[test]
fn directives_belong_to_the_block_after_them() {
    let found =
        blocks("# x\n<!-- until: a: b -->\n```sh\none\n```\n```toml\nx = 1\n```\n<!-- exit: 1 -->\n```sh\ntwo\n```\n");
    let block = |line, script: &str| Block { line, script: script.to_owned(), ..Block::default() };
    let expected =
        [Block { until: Some("a: b".to_owned()), ..block(3, "one\n") }, Block { exit: 1, ..block(10, "two\n") }];
    assert_eq!(found, expected);
}

/// A copy of what the documents work on, with a host beside it.
struct Copy {
    dir: TempDir,
    named: Option<&'static str>,
    /// Lines that set variables; each block begins with those before it.
    exports: String,
    host: Option<Child>,
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Some(host) = &mut self.host {
            let _ = host.kill();
            let _ = host.wait();
        }
    }
}

impl Copy {
    /// `named`: where `CARGO_TARGET_DIR` says that things are built; none where it is not set.
    fn new(named: Option<&'static str>) -> Self {
        let dir = TempDir::new().unwrap();
        let root = dir.path();
        // With their times: what was built of these files is up to date then.
        for part in ["plugins", "wit", "rules", "examples", "rust-toolchain.toml"] {
            cp(&repository().join(part), &root.join(part));
        }
        std::fs::create_dir_all(root.join("tests")).unwrap();
        cp(&repository().join("tests/guests"), &root.join("tests/guests"));
        let target = root.join(named.unwrap_or("target"));
        std::fs::create_dir_all(target.join("debug")).unwrap();
        symlink(weir(), target.join("debug/weir")).unwrap();
        let built = PathBuf::from(
            std::env::var_os("WEIR_TARGET").expect("WEIR_TARGET is not set: run the tests by `cargo xtask test`"),
        );
        cp(&built.join("guests"), &target.join("guests"));
        for shared in ["guests-build", "guests-native"] {
            let shared_target = built.join(shared);
            std::fs::create_dir_all(&shared_target).unwrap();
            symlink(shared_target, target.join(shared)).unwrap();
        }
        Self { dir, named, exports: String::new(), host: None }
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn target(&self) -> PathBuf {
        self.root().join(self.named.unwrap_or("target"))
    }

    /// What `cargo xtask demo` does: a run folder, and a host on it.
    fn demo(&mut self) {
        let demo = self.target().join("demo");
        assemble(&demo.join("store"));
        std::fs::create_dir_all(demo.join("data")).unwrap();
        let log = std::fs::File::create(demo.join("weir.log")).unwrap();
        let mut command = Command::new(weir());
        command.arg("run").arg("--store").arg(demo.join("store")).arg("--data").arg(demo.join("data"));
        command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.host = Some(command.spawn().unwrap());
    }

    fn bash(&self, script: &str) -> (Option<i32>, String) {
        // A copy has no xtask of its own to build: the one that runs these tests works on it. Native builds of guests share
        // what earlier runs have built.
        let cargo = "cargo() { if [ \"$1\" = xtask ]; then shift; \"$WEIR_XTASK\" \"$@\"; \
                     else CARGO_TARGET_DIR=\"$NATIVE\" command cargo \"$@\"; fi; }";
        let script = format!("set -euo pipefail\n{cargo}\n{}{script}", self.exports);
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(self.root()).stdin(Stdio::null());
        command.env("WEIR_REPOSITORY", self.root()).env("NATIVE", self.target().join("guests-native"));
        match self.named {
            Some(named) => command.env("CARGO_TARGET_DIR", named),
            None => command.env_remove("CARGO_TARGET_DIR"),
        };
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stdout) + text(&output.stderr).as_str())
    }

    fn run(&mut self, document: &str) {
        let read = std::fs::read_to_string(repository().join("docs").join(document)).unwrap();
        let all = blocks(&read);
        assert!(all.len() > 5, "docs/{document} has hardly a command");
        for block in all {
            let place = format!("docs/{document}:{}", block.line);
            if block.by_hand {
                assert!(block.script.contains("cargo xtask demo"), "{place}: what else cannot be run?");
                self.demo();
                continue;
            }
            let deadline = Instant::now() + PATIENCE;
            loop {
                let (code, said) = self.bash(&block.script);
                let Some(wanted) = &block.until else {
                    assert_eq!(code, Some(block.exit), "{place}\n{}\nsaid: {said}\n{}", block.script, self.log());
                    break;
                };
                if code == Some(block.exit) && words(&said).contains(&words(wanted)) {
                    break;
                }
                assert!(
                    Instant::now() < deadline,
                    "{place}\n{}\ndoes not show '{wanted}': code {code:?}, said: {said}\n{}",
                    block.script,
                    self.log()
                );
                pause(Duration::from_millis(500));
            }
            for line in block.script.lines().filter(|line| line.starts_with("export ")) {
                self.exports.push_str(line);
                self.exports.push('\n');
            }
        }
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.target().join("demo/weir.log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(30).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// A text without its layout: tables are as wide as what they hold.
fn words(said: &str) -> String {
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cp(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success(), "cannot copy {}", from.display());
}

/// Every kind that a fault can have; does not compile when one is added and not listed.
macro_rules! kinds {
    ($($kind:ident)*) => {{
        fn listed(kind: FaultKind) -> FaultKind {
            match kind {
                $(FaultKind::$kind => kind,)*
            }
        }
        [$(listed(FaultKind::$kind)),*]
    }};
}

fn kinds() -> Vec<FaultKind> {
    let all = kinds!(
        Config PluginConfig PluginInput PluginData PluginInternal Trap Cpu Deadline Memory Resources HostCallBytes
        HostCalls Output Alarms State Sql SqlLimit Rule RuleLimit Component Source Gap Sink SinkMismatch Ledger Unknown
        Disk ClockJump NotFound NotReplayable Cancelled Injected Internal
    );
    all.to_vec()
}

#[test]
fn links_lead_somewhere() {
    for document in [
        "README.md",
        "host/README.md",
        "docs/operator.md",
        "docs/plugin-author.md",
        "docs/detect.md",
        "plugins/README.md",
    ] {
        let path = repository().join(document);
        let read = std::fs::read_to_string(&path).unwrap();
        let links = read.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        for link in links.filter(|link| !link.starts_with("http") && !link.starts_with('#')) {
            let file = link.split('#').next().unwrap();
            assert!(path.parent().unwrap().join(file).exists(), "{document} links to {link}, which is not there");
        }
    }
}

#[test]
fn an_operator_is_told_what_each_error_means() {
    let document = std::fs::read_to_string(repository().join("docs/operator.md")).unwrap();
    for kind in kinds() {
        let name = serde_json::to_value(kind).unwrap();
        let told = format!("`{}`", name.as_str().unwrap());
        let row =
            document.lines().find(|line| line.starts_with("| `") && line.split(" | ").next().unwrap().contains(&told));
        assert!(row.is_some(), "docs/operator.md does not explain {told}");
    }
}

/// The kinds of reasons why there is no alarm; does not compile when one is added and not listed.
macro_rules! reasons {
    ($($kind:ident)*) => {{
        fn _listed(reason: &Reason) {
            match reason {
                $(Reason::$kind { .. } => {})*
            }
        }
        [$(stringify!($kind)),*]
    }};
}

#[test]
fn an_operator_is_told_what_each_reason_for_no_alarm_means() {
    let document = std::fs::read_to_string(repository().join("docs/operator.md")).unwrap();
    let all = reasons!(
        NotRun LiveFailed Failed Unread NoRows NoneInRange EmptyAnswer CallError EvaluationsFailed RuleSaysNo
        RuleFindsNone RuleNotAsked KeptBack PutAside NoVerdict OnlyCleared OpenAlready AskedNothing Unexplained
    );
    for kind in all {
        let snake = |c: char| if c.is_uppercase() { format!("_{}", c.to_lowercase()) } else { c.to_string() };
        let told = format!("`{}`", kind.chars().map(snake).collect::<String>().trim_start_matches('_'));
        let row =
            document.lines().find(|line| line.starts_with("| `") && line.split(" | ").next().unwrap().contains(&told));
        assert!(row.is_some(), "docs/operator.md does not explain {told}");
    }
}

#[test]
fn what_an_operator_is_told_to_do_works() {
    Copy::new(None).run("operator.md");
}

#[test]
fn what_a_plugin_author_is_told_to_do_works() {
    Copy::new(Some("built/elsewhere")).run("plugin-author.md");
}
