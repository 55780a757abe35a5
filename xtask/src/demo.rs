//! `cargo xtask demo`: an example of examples/ in a folder of its own, under a host that is built here.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::args::Args;
use crate::guests;
use crate::paths::{Paths, copy, list, make_dir, read, remove_dir, write};
use crate::process::{cargo, run as run_program};
use crate::setup;

/// Starts the host and `weir tail`, and passes signals on. A shell can do that; std cannot.
const SUPERVISE: &str = include_str!("demo.sh");
/// Lies in every folder that this command has made, and in none that it has not: only such a folder is ever removed.
const MARK: &str = ".weir-demo";
/// A second form of a scenario that is there already: its alarms would only be the same ones twice.
const TWICE: &str = "netops/s1-rule-only";

/// What the developer asked for.
pub struct Options {
    example: String,
    dir: Option<PathBuf>,
    keep: bool,
    listen: String,
    seconds: Option<u64>,
    speed: Option<u32>,
    injector: bool,
}

impl Options {
    /// Takes them from the command line.
    pub fn from(args: &mut Args) -> Result<Self, String> {
        let seconds = args
            .value("--for")?
            .map(|text| text.parse().map_err(|_| format!("--for takes a number of seconds, not '{text}'")));
        let speed = args.value("--speed")?.map(|text| match text.parse() {
            Ok(speed @ 1..=1_000) => Ok(speed),
            _ => Err(format!("--speed takes a number from 1 to 1000, not '{text}'")),
        });
        Ok(Self {
            example: args.value("--example")?.unwrap_or("network-cep".to_owned()),
            dir: args.value("--dir")?.map(PathBuf::from),
            keep: args.flag("--keep"),
            listen: args.value("--listen")?.unwrap_or("127.0.0.1:8470".to_owned()),
            seconds: seconds.transpose()?,
            speed: speed.transpose()?,
            injector: args.flag("--injector"),
        })
    }
}

/// Builds, assembles, runs until Ctrl-C or the time is over.
pub fn run(paths: &Paths, options: &Options) -> Outcome {
    let example = paths.root.join("examples").join(&options.example);
    if !example.join("store").is_dir() {
        return Err(format!("there is no examples/{}/store", options.example));
    }
    // Before the long part, and once more by the host itself.
    free(&options.listen)?;
    setup::host_tools()?;
    guests::build(paths, &setup::guest_toolchain(paths)?)?;
    // Of the whole workspace, so that dependencies get the features that they have in tests, and are built once.
    run_program(cargo(paths).args(["build", "--workspace", "--bin", "weir"]))?;

    let dir = options.dir.clone().unwrap_or(paths.target.join("demo"));
    make_run_folder(&dir, options.keep)?;
    let dir = std::path::absolute(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let store = dir.join("store");
    if !options.keep || !store.exists() {
        assemble(paths, &example, &store)?;
        remove_dir(&store.join(TWICE))?;
        if options.injector {
            inject(&example, &store)?;
        }
    }
    make_dir(&dir.join("data"))?;
    let weir = paths.target.join("debug/weir");
    println!("{}", introduction(options, &dir, &weir));

    // This process becomes the shell: nobody is left in between who would have to pass a signal on.
    let failed = Command::new("sh")
        .args(["-c", SUPERVISE, "weir-demo"])
        .arg(&weir)
        .arg(&dir)
        .arg(&options.listen)
        .arg(options.seconds.map_or(String::new(), |s| s.to_string()))
        .args(options.speed.iter().flat_map(|speed| ["--speed".to_owned(), speed.to_string()]))
        .exec();
    Err(format!("cannot start sh: {failed}"))
}

/// Copies an example's store and adds its parts: lines `FROM TO` in `parts.txt`, where `FROM` is `guests/NAME.wasm` (a
/// component that was built here) or a path in the repository, and `TO` a path in the store.
pub fn assemble(paths: &Paths, example: &Path, store: &Path) -> Outcome {
    copy_tree(&example.join("store"), store)?;
    for (from, to) in parts(&read(&example.join("parts.txt"))?)? {
        let source = match from.strip_prefix("guests/") {
            Some(component) => paths.guests().join(component),
            None => paths.root.join(&from),
        };
        copy(&source, &store.join(to))?;
    }
    Ok(())
}

/// Puts the injector's data in the place of the starter's: files of `injector/` over streams of the same name.
fn inject(example: &Path, store: &Path) -> Outcome {
    let injector = example.join("injector");
    if !injector.is_dir() {
        return Err(format!("{} has no injector/", example.display()));
    }
    for file in list(&injector)? {
        for tenant in list(store)? {
            let stream = tenant.join("streams").join(file.file_name().unwrap_or_default());
            if stream.is_file() {
                copy(&file, &stream)?;
            }
        }
    }
    Ok(())
}

fn parts(text: &str) -> Result<Vec<(String, String)>, String> {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [from, to] => Ok((from.to_owned(), to.to_owned())),
                _ => Err(format!("parts.txt: '{line}' is not FROM TO")),
            }
        })
        .collect()
}

fn copy_tree(from: &Path, to: &Path) -> Outcome {
    for path in list(from)? {
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_tree(&path, &to)?;
        } else {
            copy(&path, &to)?;
        }
    }
    Ok(())
}

fn make_run_folder(dir: &Path, keep: bool) -> Outcome {
    let used = dir.exists() && !list(dir)?.is_empty();
    if used && !dir.join(MARK).exists() {
        return Err(format!("{} is not empty and was not made by this command: choose another --dir", dir.display()));
    }
    if !keep {
        if let Ok(lock) = std::fs::File::open(dir.join("data/host.lock"))
            && lock.try_lock().is_err()
        {
            return Err(format!("a host runs on {}/data: end it first, or choose another --dir", dir.display()));
        }
        remove_dir(dir)?;
    }
    write(&dir.join(MARK), "made by cargo xtask demo, and made anew by it\n")
}

fn free(address: &str) -> Outcome {
    TcpListener::bind(address).map(drop).map_err(|e| {
        format!("cannot listen on {address} ({e}): is a demo still running? Else choose another with --listen")
    })
}

fn introduction(options: &Options, dir: &Path, weir: &Path) -> String {
    let (dir, weir, example, listen) = (dir.display(), weir.display(), &options.example, &options.listen);
    let data = format!("--data {dir}/data");
    let hint = if example == "network-cep" {
        format!(
            "\nEdit a rule while it runs: in\n  {dir}/store/netops/s1-syslog/rules/1-2.json\n\
             make `>= 50` a `>= 70` and save. The next batch, within {} seconds, uses it: Edge-RouterA-034 sends 50\n\
             messages a minute, and turns from critical to warning. Break the file, and the last good one keeps running:\n\
             `weir status` says what is wrong with the new one.\n",
            until_used(options.speed)
        )
    } else {
        String::new()
    };
    let hurry = match options.speed {
        None | Some(1) => String::new(),
        Some(speed) => format!(
            "\nTime runs {speed} times as fast: a day in {}. The folder's time is ahead of the world's then, and goes on from\n\
             there with --keep.\n",
            minutes(86_400 / u64::from(speed))
        ),
    };
    format!(
        "
{example} runs in {dir}
  store/    tenants, streams, scenarios, rules: edit what you like
  data/     the host's own: its ledger, and Delta tables in data/lake/TENANT/TABLE
  weir.log  what the host says
{hurry}{hint}
In another terminal:
  {weir} status {data}
  {weir} query {data} 'SELECT * FROM s1_results ORDER BY alarm_time DESC LIMIT 5'
  {weir} help
REST is at http://{listen}. Ctrl-C ends it. Alarms:
"
    )
}

/// Seconds until an edit is used, at most: the host looks each second and waits one for the file to rest, whatever the
/// speed; then the trigger's ten seconds pass, which are the data's.
fn until_used(speed: Option<u32>) -> u32 {
    2 + 10u32.div_ceil(speed.unwrap_or(1).max(1))
}

fn minutes(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} seconds"),
        120..7_200 => format!("{} minutes", seconds / 60),
        _ => format!("{} hours", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds of the data are less at a higher speed; looking at the store is not.
    #[test]
    fn an_edit_is_used_sooner_the_faster_time_runs() {
        let at = [None, Some(1), Some(3), Some(60), Some(1000)].map(until_used);
        assert_eq!(at, [12, 12, 6, 3, 3]);
        let options = |speed| Options {
            example: "network-cep".to_owned(),
            dir: None,
            keep: false,
            listen: "127.0.0.1:1".to_owned(),
            seconds: None,
            speed,
            injector: false,
        };
        let said = |speed| introduction(&options(speed), Path::new("/d"), Path::new("/w"));
        assert!(said(Some(60)).contains("within 3 seconds") && said(None).contains("within 12 seconds"));
    }

    #[test]
    fn parts_are_pairs_with_comments() {
        let text = "# what\n\na/b.json  t/b.json # why\nguests/x.wasm t/x.wasm\n";
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(parts(text), Ok(vec![pair("a/b.json", "t/b.json"), pair("guests/x.wasm", "t/x.wasm")]));
        assert!(parts("only").is_err_and(|e| e.contains("only")));
    }

    #[test]
    fn the_injectors_streams_take_the_place_of_those_of_the_same_name() {
        let dir = std::env::temp_dir().join(format!("xtask-inject-{}", std::process::id()));
        let (example, store) = (dir.join("example"), dir.join("store"));
        for (file, text) in [
            ("example/injector/a.toml", "injected"),
            ("store/acme/streams/a.toml", "a"),
            ("store/acme/streams/b.toml", "b"),
        ] {
            write(&dir.join(file), text).expect("write");
        }
        inject(&example, &store).expect("injected");
        let of = |stream: &str| read(&store.join("acme/streams").join(stream)).expect("read");
        assert_eq!((of("a.toml"), of("b.toml")), ("injected".to_owned(), "b".to_owned()));
        assert!(inject(&store, &store).is_err());
        remove_dir(&dir).expect("clean");
    }

    #[test]
    fn speeds_are_numbers_also_after_two_dashes() {
        let options = |line: &str| Options::from(&mut Args::new(line.split(' ').map(str::to_owned)).joined());
        assert_eq!(options("-- --speed 60 --injector").map(|o| (o.speed, o.injector)), Ok((Some(60), true)));
        assert_eq!(options("--speed=1000").map(|o| o.speed), Ok(Some(1_000)));
        for bad in ["--speed 0", "--speed 1001", "--speed fast", "--speed"] {
            assert!(options(bad).is_err(), "{bad}");
        }
        assert_eq!(minutes(86_400 / 60), "24 minutes");
    }

    #[test]
    fn a_folder_of_somebody_else_is_never_removed() {
        let dir = std::env::temp_dir().join(format!("xtask-demo-{}", std::process::id()));
        write(&dir.join("precious"), "x").expect("write");
        assert!(make_run_folder(&dir, false).is_err());
        assert!(make_run_folder(&dir, true).is_err());
        assert!(dir.join("precious").exists());

        let ours = dir.join("ours");
        make_run_folder(&ours, false).expect("new");
        write(&ours.join("store/x"), "x").expect("write");
        make_run_folder(&ours, true).expect("kept");
        assert!(ours.join("store/x").exists());
        make_run_folder(&ours, false).expect("afresh");
        assert!(!ours.join("store").exists());
        remove_dir(&dir).expect("clean");
    }
}
