//! The detector's log. The host bounds it in lines and bytes and shows it to the scenario's owner.

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Writes a line.
pub fn write(level: Level, message: impl AsRef<str>) {
    let message = message.as_ref();
    #[cfg(target_family = "wasm")]
    crate::wasm::log(level, message);
    #[cfg(not(target_family = "wasm"))]
    match crate::backend::ambient() {
        Some(ambient) => ambient.log(level, message),
        None => eprintln!("{level:?}: {message}"),
    }
}
/// For whoever looks for a defect.
pub fn debug(message: impl AsRef<str>) {
    write(Level::Debug, message);
}
/// Worth knowing.
pub fn info(message: impl AsRef<str>) {
    write(Level::Info, message);
}
/// Somebody should look at it.
pub fn warn(message: impl AsRef<str>) {
    write(Level::Warn, message);
}
/// Something could not be done.
pub fn error(message: impl AsRef<str>) {
    write(Level::Error, message);
}
