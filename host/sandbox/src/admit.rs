//! Which components are accepted: pure functions over their bytes, asked before anything is compiled.
//!
//! The interface version is read from the names of imports and exports. Import lists are never compared for equality:
//! two toolchains of the same language import different parts of WASI, and use none of them.

use wasmtime::WasmFeatures;
use wasmtime::wasmparser::{Chunk, Encoding, Parser, Payload, Validator};
use weir_model::Problem;

use crate::engine::ALLOWED;

/// The package that plugins implement.
pub const PACKAGE: &str = "weir:detect";
/// Its version that this host knows. A plugin made for an older 0.1 runs, one made for a newer 0.1 may miss functions.
pub const VERSION: (u64, u64, u64) = (0, 1, 0);
/// What a plugin must export.
const EXPORT: &str = "plugin";

/// The interfaces of [`PACKAGE`] that a plugin may import.
const OURS: &[&str] = &["types", "batches", "assets", "log"];

/// WASI 0.2, as far as it is linked: deny-all, with clocks and random numbers that are functions of the batch.
const WASI: &[&str] = &[
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// Names of a component's own imports and exports, not of those nested in it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    imports: Vec<String>,
    exports: Vec<String>,
}

/// Checks everything that can be said without compiling. All problems are about `file`.
pub fn check(file: &str, bytes: &[u8], component_bytes: u64) -> Result<(), Vec<Problem>> {
    if bytes.len() as u64 > component_bytes {
        return Err(vec![
            Problem::new(file, format_args!("the component has {} bytes, more than {component_bytes}", bytes.len()))
                .fix("make it smaller, or raise limits.component_bytes in tenant.toml"),
        ]);
    }
    kind(file, bytes).map_err(|p| vec![p])?;
    let names = names(file, bytes).map_err(|p| vec![p])?;
    version(file, &names).map_err(|p| vec![p])?;
    let problems: Vec<Problem> = names
        .imports
        .iter()
        .filter(|name| !granted(name))
        .map(|name| {
            Problem::new(
                file,
                format_args!("it imports {name}, which is not granted to plugins"),
            )
            .field(name)
            .fix("build it without what needs this import; plugins get weir:detect and a WASI 0.2 that denies files and network")
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Tells a component from everything else that may have been put in its place.
fn kind(file: &str, bytes: &[u8]) -> Result<(), Problem> {
    const FIX: &str = "build it for wasm32-wasip2: cargo build --release --target wasm32-wasip2";
    if bytes.is_empty() {
        return Err(Problem::new(file, "the file is empty").fix(FIX).partial());
    }
    if b"\0asm".starts_with(&bytes[..bytes.len().min(4)]) && bytes.len() < 8 {
        return Err(cut_short(file));
    }
    if Parser::is_component(bytes) {
        return Ok(());
    }
    if Parser::is_core_wasm(bytes) {
        return Err(Problem::new(file, "it is a WebAssembly module, not a component").fix(FIX));
    }
    let text = std::str::from_utf8(&bytes[..bytes.len().min(4_096)]).is_ok();
    let message = if text && bytes.trim_ascii_start().starts_with(b"(") {
        "it is WebAssembly text, not a component"
    } else if text {
        "it is text, not a component"
    } else {
        "it is no WebAssembly component"
    };
    Err(Problem::new(file, message).fix(FIX))
}

fn cut_short(file: &str) -> Problem {
    Problem::new(file, "the component is cut short")
        .fix("copy it again, under another name, and rename it when it is whole")
        .partial()
}

fn damaged(file: &str, error: &wasmtime::wasmparser::BinaryReaderError) -> Problem {
    Problem::new(file, format_args!("the component is damaged: {error}")).fix("copy or build it again").partial()
}

fn names(file: &str, bytes: &[u8]) -> Result<Names, Problem> {
    let mut out = Names::default();
    let mut parser = Parser::new(0);
    let mut rest = bytes;
    loop {
        // `eof` is said so that the end of the last section is known; what then misses is an error.
        let (consumed, payload) = match parser.parse(rest, true) {
            Ok(Chunk::Parsed { consumed, payload }) => (consumed, payload),
            Ok(Chunk::NeedMoreData(_)) => return Err(cut_short(file)),
            Err(e) if e.message().contains("unexpected end") => return Err(cut_short(file)),
            Err(e) => return Err(damaged(file, &e)),
        };
        rest = &rest[consumed..];
        match payload {
            Payload::Version { encoding, .. } if encoding != Encoding::Component => {
                return Err(Problem::new(file, "it is no component"));
            }
            // What is nested has imports of its own, which the component around it answers.
            Payload::ModuleSection { unchecked_range: range, .. }
            | Payload::ComponentSection { unchecked_range: range, .. } => {
                rest = rest.get(range.len()..).ok_or_else(|| cut_short(file))?;
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import.map_err(|e| damaged(file, &e))?;
                    out.imports.push(import.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export = export.map_err(|e| damaged(file, &e))?;
                    out.exports.push(export.name.name.to_owned());
                }
            }
            Payload::End(_) => return Ok(out),
            _ => {}
        }
    }
}

/// `weir:detect/plugin@0.1.0` in its parts: interface and version.
fn ours(name: &str) -> Option<(&str, &str)> {
    let name = name.strip_prefix(PACKAGE)?.strip_prefix('/')?;
    Some(name.split_once('@').unwrap_or((name, "")))
}

fn known(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse::<u64>);
    let mut next = || numbers.next().and_then(Result::ok);
    let (major, minor, patch) = (next(), next(), next());
    numbers.next().is_none()
        && (major, minor) == (Some(VERSION.0), Some(VERSION.1))
        && patch.is_some_and(|patch| patch <= VERSION.2)
}

fn version(file: &str, names: &Names) -> Result<(), Problem> {
    let (a, b, c) = VERSION;
    let all = names.exports.iter().chain(&names.imports);
    if let Some(version) = all.filter_map(|name| ours(name)).map(|(_, version)| version).find(|version| !known(version))
    {
        return Err(Problem::new(
            file,
            format_args!("unknown interface version {PACKAGE}@{version}; this host knows {a}.{b}.{c}"),
        )
        .fix(format_args!("build it against {PACKAGE}@{a}.{b}.{c}, or use a host that knows {version}")));
    }
    if names.exports.iter().filter_map(|name| ours(name)).any(|(interface, _)| interface == EXPORT) {
        return Ok(());
    }
    Err(Problem::new(file, format_args!("it does not export {PACKAGE}/{EXPORT}@{a}.{b}.{c}, so it is no plugin"))
        .fix("implement the world weir:detect/detector; the SDK's macro does it")
        // A file that is cut where a section ends looks like this too.
        .partial())
}

fn granted(import: &str) -> bool {
    if let Some((interface, _)) = ours(import) {
        return OURS.contains(&interface);
    }
    import.split_once('@').is_some_and(|(name, version)| WASI.contains(&name) && version.starts_with("0.2."))
}

/// Checks that the component is valid and uses no WebAssembly beyond [`ALLOWED`]; the problem names the feature.
/// Reads all code, so it is asked where the component is going to be compiled.
pub fn validate(file: &str, bytes: &[u8]) -> Result<(), Problem> {
    let check = |features| Validator::new_with_features(features).validate_all(bytes);
    let Err(error) = check(ALLOWED) else {
        return Ok(());
    };
    let missing = error.missing_wasm_feature().unwrap_or_else(|| {
        // An error that does not name a feature may still be about one: then it goes away when the feature is there.
        WasmFeatures::all()
            .difference(ALLOWED)
            .iter()
            .find(|feature| check(ALLOWED.union(*feature)).is_ok())
            .unwrap_or(WasmFeatures::empty())
    });
    if missing.is_empty() {
        return Err(Problem::new(file, format_args!("the component is not valid: {error}")).fix("build it again"));
    }
    let names: Vec<String> = missing.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect();
    let names = names.join(", ");
    Err(Problem::new(file, format_args!("it uses the WebAssembly feature {names}, which plugins may not use: {error}"))
        .field(&names)
        .fix("build it without that feature: wasm32-wasip2 with its default target features"))
}
