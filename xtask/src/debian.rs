//! A compiler for guests where rustup cannot download: Debian and Ubuntu carry a newer rustc for their browsers
//! (rustc-web), its sources, and a C library for WebAssembly. From these the standard library is built once, and a
//! rustup toolchain of its own is laid out from links:
//!
//! ```text
//! bin/rustc                                   Debian's, told to use this folder as its sysroot
//! bin/cargo, bin/rustfmt                      rustup's
//! lib/rustlib/<host>/lib                      Debian's, for build scripts and macros
//! lib/rustlib/<host>/bin                      rustup's linkers (wasm-component-ld, rust-lld)
//! lib/rustlib/wasm32-wasip2/lib               the library that is built here
//! lib/rustlib/wasm32-wasip2/lib/self-contained  crt1.o and libc.a of Debian's wasi-libc
//! ```
//!
//! Neither Debian's nor rustup's own folders are written to. `rustup toolchain uninstall weir-guest` undoes it.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::paths::{Paths, copy, list, make_dir, remove_dir, write};
use crate::process::{cargo, output, run};
use crate::toolchain::{TARGET, has_std, rustc};

/// The toolchain's name in rustup.
pub const NAME: &str = "weir-guest";

const PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "wasi-libc"];
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const WASI_LIBC: &str = "/usr/lib/wasm32-wasi";

/// Whether the toolchain is there and made of what is installed now.
pub fn ready(paths: &Paths) -> bool {
    let Ok(dir) = folder() else { return false };
    let is = std::fs::read_to_string(dir.join("stamp")).ok();
    let Some(versions) = installed() else {
        return false;
    };
    is.is_some_and(|is| own_sysroot(paths).is_ok_and(|own| is == stamp(&versions, &own)))
        && has_std(&paths.root, Some(NAME))
}

/// Installs the packages and makes the toolchain: one to three minutes.
pub fn build(paths: &Paths) -> Outcome {
    let versions = match installed() {
        Some(versions) => versions,
        None => {
            install_packages()?;
            installed().ok_or("apt-get installed the packages, but dpkg does not list them")?
        }
    };
    let dir = folder()?;
    let own = own_sysroot(paths)?;
    remove_dir(&dir)?;
    let std = lay_out(&dir, &own, &host(paths)?)?;
    run(Command::new("rustup").args(["toolchain", "link", NAME]).arg(&dir))?;
    build_std(paths, &dir.join("build"), &std)?;
    // Last, so that what was cut short is made again.
    write(&dir.join("stamp"), &stamp(&versions, &own))
}

fn folder() -> Result<PathBuf, String> {
    let set = |name: &str| std::env::var_os(name).filter(|v: &OsString| !v.is_empty());
    set("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".local/share")))
        .map(|data| data.join("weir").join(NAME))
        .ok_or_else(|| "HOME is not set".to_owned())
}

fn own_sysroot(paths: &Paths) -> Result<PathBuf, String> {
    output(rustc(&paths.root, None).args(["--print", "sysroot"])).map(PathBuf::from)
}

fn host(paths: &Paths) -> Result<String, String> {
    let version = output(rustc(&paths.root, None).arg("-vV"))?;
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// Versions of the packages, when all are installed.
fn installed() -> Option<String> {
    let listed = output(
        Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status} ${Package} ${Version}\n"]).args(PACKAGES),
    )
    .ok()?;
    let all = listed.lines().count() == PACKAGES.len() && listed.lines().all(|line| line.starts_with("installed "));
    all.then_some(listed)
}

fn stamp(versions: &str, own: &Path) -> String {
    format!("layout 1\n{versions}\n{}\n", own.display())
}

fn install_packages() -> Outcome {
    let root = output(Command::new("id").arg("-u"))? == "0";
    let apt = || {
        if root {
            Command::new("apt-get")
        } else {
            let mut sudo = Command::new("sudo");
            sudo.arg("apt-get");
            sudo
        }
    };
    // An old package list may still do.
    if let Err(why) = run(apt().args(["update", "-qq"])) {
        eprintln!("{why}");
    }
    run(apt()
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(PACKAGES)
        .env("DEBIAN_FRONTEND", "noninteractive"))
    .map_err(|why| format!("{why}\nby hand: apt-get install --no-install-recommends {}", PACKAGES.join(" ")))
}

/// Makes the folder as described above, without the library; returns where the library goes.
fn lay_out(dir: &Path, own: &Path, host: &str) -> Result<PathBuf, String> {
    let debian = output(Command::new(DEBIAN_RUSTC).args(["--print", "sysroot"]))?;
    let debian = Path::new(&debian).join("lib/rustlib");
    let linkers = own.join("lib/rustlib").join(host).join("bin");
    if !linkers.join("wasm-component-ld").is_file() {
        return Err(format!("{} has no wasm-component-ld: the toolchain in use is not rustup's", linkers.display()));
    }
    let rustlib = dir.join("lib/rustlib");
    link(&debian.join(host).join("lib"), &rustlib.join(host).join("lib"))?;
    link(&debian.join("src"), &rustlib.join("src"))?;
    link(&linkers, &rustlib.join(host).join("bin"))?;
    // No clippy: its driver works with its own rustc's library only.
    for tool in ["cargo", "rustfmt", "cargo-fmt"] {
        let from = own.join("bin").join(tool);
        if from.exists() {
            link(&from, &dir.join("bin").join(tool))?;
        }
    }
    for tool in ["rustc", "rustdoc"] {
        let path = dir.join("bin").join(tool);
        let sysroot = dir.display();
        write(&path, &format!("#!/bin/sh\nexec /usr/bin/{tool} --sysroot '{sysroot}' \"$@\"\n"))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .map_err(|e| format!("cannot make {} executable: {e}", path.display()))?;
    }
    let std = rustlib.join(TARGET).join("lib");
    for file in list(Path::new(WASI_LIBC))? {
        let name = file.file_name().unwrap_or_default();
        if file.extension().is_some_and(|e| e == "o" || e == "a") {
            copy(&file, &std.join("self-contained").join(name))?;
        }
    }
    Ok(std)
}

/// Builds std for guests in a package of its own and puts it where rustc looks.
fn build_std(paths: &Paths, package: &Path, std: &Path) -> Outcome {
    write(
        &package.join("Cargo.toml"),
        "[package]\nname = \"only-std\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
         [lib]\npath = \"lib.rs\"\n[profile.release]\ncodegen-units = 1\n[workspace]\n",
    )?;
    write(&package.join("lib.rs"), "")?;
    let target = package.join("target");
    run(cargo(paths)
        .current_dir(package)
        .args(["build", "--quiet", "--release", "--target", TARGET])
        .arg("-Zbuild-std=std,panic_abort,proc_macro")
        .env("RUSTUP_TOOLCHAIN", NAME)
        .env("RUSTC_BOOTSTRAP", "1")
        // With bitcode inside, guests can use `lto = true`.
        .env("RUSTFLAGS", "-Cembed-bitcode=yes")
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC")
        .env_remove("RUSTC_WRAPPER"))?;
    for file in list(&target.join(TARGET).join("release/deps"))? {
        let name = file.file_name().unwrap_or_default();
        let text = name.to_string_lossy();
        if text.ends_with(".rlib") && !text.starts_with("libonly_std-") {
            copy(&file, &std.join(name))?;
        }
    }
    remove_dir(package)
}

fn link(from: &Path, at: &Path) -> Outcome {
    at.parent().map_or(Ok(()), make_dir)?;
    symlink(from, at).map_err(|e| format!("cannot link {}: {e}", at.display()))
}
