//! WASI 0.2 as plugins get it: nothing of the machine.
//!
//! There are no files, sockets, environment or arguments. The wall clock stands at T. The monotonic clock begins at 0
//! and moves only when the guest sleeps, and a sleep takes no time: wasmtime-wasi's own would really sleep, where
//! neither fuel nor epoch is looked at. Random numbers come from the batch's seed. What is written to stdout and stderr
//! goes to the plugin's log. So only the interfaces through which no resource can ever come to be are wasmtime-wasi's.

use wasmtime::component::{HasSelf, Linker, Resource, ResourceTable, ResourceType};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::cli::{WasiCli, WasiCliCtx, WasiCliCtxView};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemCtx, WasiFilesystemCtxView};
use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, random, sockets, sync};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, IoError, StreamError, StreamResult};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsCtx, WasiSocketsCtxView};
use weir_model::Time;

use crate::call::Call;
use crate::fault::{Exit, handles};
use crate::limits::out_of_memory;
use crate::log::Standard;

/// Streams have fixed numbers, as there is nothing to keep of one.
const STDIN: u32 = 0;
const STDOUT: u32 = 1;
const STDERR: u32 = 2;

/// What a guest may write at once; it asks again for the rest.
const WRITE_BYTES: u64 = 64 * 1024;

/// Clocks, random numbers and pollables of one call.
pub struct Wasi {
    wall: Time,
    /// Nanoseconds that were slept.
    monotonic: u64,
    seed: [u8; 32],
    random: Option<Box<blake3::OutputReader>>,
    /// When each pollable is ready, by its number; none when it was dropped. Numbers are never used again.
    pollables: Vec<Option<u64>>,
    live: u64,
    nothing: Option<Box<Nothing>>,
}

/// The contexts of wasmtime-wasi's own interfaces: nothing is granted in them.
#[derive(Default)]
struct Nothing {
    table: ResourceTable,
    cli: WasiCliCtx,
    files: WasiFilesystemCtx,
    sockets: WasiSocketsCtx,
}

impl Wasi {
    /// Clocks stand at their beginning.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { wall: Time::EPOCH, monotonic: 0, random: None, seed, pollables: Vec::new(), live: 0, nothing: None }
    }

    /// The wall clock stands at T from now on, and random numbers are the batch's.
    pub fn enter_batch(&mut self, time: Time, seed: [u8; 32]) {
        self.wall = time;
        self.seed = seed;
        self.random = None;
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        let seed = self.seed;
        self.random
            .get_or_insert_with(|| {
                let mut hasher = blake3::Hasher::new_keyed(&seed);
                hasher.update(b"weir random 1");
                Box::new(hasher.finalize_xof())
            })
            .fill(bytes);
    }

    fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn nothing(&mut self) -> &mut Nothing {
        self.nothing.get_or_insert_default()
    }

    fn due(&self, pollable: &Resource<DynPollable>) -> Result<u64> {
        self.pollables
            .get(pollable.rep() as usize)
            .copied()
            .flatten()
            .ok_or_else(|| wasmtime::Error::msg("a handle from an earlier call"))
    }
}

impl Call {
    fn pollable(&mut self, due: u64) -> Result<Resource<DynPollable>> {
        self.enter_wasi()?;
        let most = self.limits().handles;
        if self.wasi.live >= most {
            return Err(handles(most).into());
        }
        let number = u32::try_from(self.wasi.pollables.len())?;
        self.wasi.pollables.push(Some(due));
        self.wasi.live += 1;
        Ok(Resource::new_own(number))
    }

    /// WASI answers in every phase: language runtimes ask it for things before they run a line of the plugin, and there
    /// is nothing in it that could be kept from `describe`.
    fn enter_wasi(&mut self) -> Result<()> {
        Ok(self.meter.enter()?)
    }

    fn enter_stream(&mut self) -> StreamResult<()> {
        self.enter_wasi().map_err(StreamError::Trap)
    }

    fn random_bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.enter_wasi()?;
        if len > self.limits().memory_bytes {
            return Err(out_of_memory(self.limits()).into());
        }
        self.meter.work(len)?;
        let mut out = vec![0; usize::try_from(len)?];
        self.wasi.fill(&mut out);
        Ok(out)
    }
}

/// Links all of it.
pub fn link(linker: &mut Linker<Call>) -> Result<()> {
    let l = linker;
    own(l)?;
    cli::terminal_input::add_to_linker::<Call, WasiCli>(l, terminals)?;
    cli::terminal_output::add_to_linker::<Call, WasiCli>(l, terminals)?;
    sync::filesystem::types::add_to_linker::<Call, WasiFilesystem>(l, files)?;
    let options = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<Call, WasiSockets>(l, &options, no_sockets)?;
    sockets::instance_network::add_to_linker::<Call, WasiSockets>(l, no_sockets)?;
    sockets::ip_name_lookup::add_to_linker::<Call, WasiSockets>(l, no_sockets)?;
    sockets::tcp_create_socket::add_to_linker::<Call, WasiSockets>(l, no_sockets)?;
    sync::sockets::udp_create_socket::add_to_linker::<Call, WasiSockets>(l, no_sockets)?;
    sync::sockets::tcp::add_to_linker::<Call, WasiSockets>(l, no_sockets)?;
    sync::sockets::udp::add_to_linker::<Call, WasiSockets>(l, no_sockets)
}

fn own(l: &mut Linker<Call>) -> Result<()> {
    type Own = HasSelf<Call>;
    fn call(call: &mut Call) -> &mut Call {
        call
    }
    let mut error = l.instance("wasi:io/error@0.2.12")?;
    error.resource("error", ResourceType::host::<IoError>(), |_, _| Ok(()))?;
    error.func_wrap("[method]error.to-debug-string", |_: StoreContextMut<'_, Call>, (_,): (Resource<IoError>,)| {
        Ok((String::new(),))
    })?;
    sync::io::poll::add_to_linker::<Call, Own>(l, call)?;
    sync::io::streams::add_to_linker::<Call, Own>(l, call)?;
    cli::environment::add_to_linker::<Call, Own>(l, call)?;
    cli::exit::add_to_linker::<Call, Own>(l, call)?;
    cli::stdin::add_to_linker::<Call, Own>(l, call)?;
    cli::stdout::add_to_linker::<Call, Own>(l, call)?;
    cli::stderr::add_to_linker::<Call, Own>(l, call)?;
    cli::terminal_stdin::add_to_linker::<Call, Own>(l, call)?;
    cli::terminal_stdout::add_to_linker::<Call, Own>(l, call)?;
    cli::terminal_stderr::add_to_linker::<Call, Own>(l, call)?;
    clocks::monotonic_clock::add_to_linker::<Call, Own>(l, call)?;
    clocks::wall_clock::add_to_linker::<Call, Own>(l, call)?;
    filesystem::preopens::add_to_linker::<Call, Own>(l, call)?;
    random::random::add_to_linker::<Call, Own>(l, call)?;
    random::insecure::add_to_linker::<Call, Own>(l, call)?;
    random::insecure_seed::add_to_linker::<Call, Own>(l, call)
}

fn terminals(call: &mut Call) -> WasiCliCtxView<'_> {
    let Nothing { table, cli, .. } = call.wasi.nothing();
    WasiCliCtxView { ctx: cli, table }
}
fn files(call: &mut Call) -> WasiFilesystemCtxView<'_> {
    let Nothing { table, files, .. } = call.wasi.nothing();
    WasiFilesystemCtxView { ctx: files, table }
}
fn no_sockets(call: &mut Call) -> WasiSocketsCtxView<'_> {
    let Nothing { table, sockets, .. } = call.wasi.nothing();
    WasiSocketsCtxView { ctx: sockets, table }
}

impl sync::io::poll::Host for Call {
    /// What is due now; when nothing is, time passes until the first is.
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> Result<Vec<u32>> {
        self.enter_wasi()?;
        self.meter.work(pollables.len() as u64)?;
        let due = pollables.iter().map(|p| self.wasi.due(p)).collect::<Result<Vec<u64>>>()?;
        let Some(first) = due.iter().min() else {
            return Err(wasmtime::Error::msg("poll of an empty list never ends"));
        };
        self.wasi.monotonic = self.wasi.monotonic.max(*first);
        let now = self.wasi.monotonic;
        Ok((0..).zip(due).filter(|(_, due)| *due <= now).map(|(i, _)| i).collect())
    }
}

impl sync::io::poll::HostPollable for Call {
    fn ready(&mut self, pollable: Resource<DynPollable>) -> Result<bool> {
        self.enter_wasi()?;
        Ok(self.wasi.due(&pollable)? <= self.wasi.monotonic)
    }
    fn block(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        self.enter_wasi()?;
        let due = self.wasi.due(&pollable)?;
        self.wasi.monotonic = self.wasi.monotonic.max(due);
        Ok(())
    }
    fn drop(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        if let Some(slot) = self.wasi.pollables.get_mut(pollable.rep() as usize)
            && slot.take().is_some()
        {
            self.wasi.live -= 1;
        }
        Ok(())
    }
}

impl sync::io::streams::Host for Call {
    fn convert_stream_error(&mut self, error: StreamError) -> Result<sync::io::streams::StreamError> {
        match error {
            StreamError::Closed => Ok(sync::io::streams::StreamError::Closed),
            StreamError::LastOperationFailed(e) | StreamError::Trap(e) => Err(e),
        }
    }
}

/// stdin: closed from the beginning.
impl sync::io::streams::HostInputStream for Call {
    fn read(&mut self, _: Resource<DynInputStream>, _: u64) -> StreamResult<Vec<u8>> {
        self.enter_stream()?;
        Err(StreamError::Closed)
    }
    fn blocking_read(&mut self, _: Resource<DynInputStream>, _: u64) -> StreamResult<Vec<u8>> {
        self.enter_stream()?;
        Err(StreamError::Closed)
    }
    fn skip(&mut self, _: Resource<DynInputStream>, _: u64) -> StreamResult<u64> {
        self.enter_stream()?;
        Err(StreamError::Closed)
    }
    fn blocking_skip(&mut self, _: Resource<DynInputStream>, _: u64) -> StreamResult<u64> {
        self.enter_stream()?;
        Err(StreamError::Closed)
    }
    fn subscribe(&mut self, _: Resource<DynInputStream>) -> Result<Resource<DynPollable>> {
        self.pollable(0)
    }
    fn drop(&mut self, _: Resource<DynInputStream>) -> Result<()> {
        Ok(())
    }
}

impl Call {
    fn log_bytes(&mut self, stream: &Resource<DynOutputStream>, bytes: &[u8]) -> StreamResult<()> {
        self.enter_stream()?;
        self.meter.work(bytes.len() as u64).map_err(|e| StreamError::Trap(e.into()))?;
        let stream = match stream.rep() {
            STDERR => Standard::Err,
            _ => Standard::Out,
        };
        self.log.write(stream, bytes);
        Ok(())
    }
}

/// stdout and stderr: always ready, never full. What the log has no room for is counted there.
impl sync::io::streams::HostOutputStream for Call {
    fn check_write(&mut self, _: Resource<DynOutputStream>) -> StreamResult<u64> {
        self.enter_stream()?;
        Ok(WRITE_BYTES)
    }
    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        self.log_bytes(&stream, &bytes)
    }
    fn blocking_write_and_flush(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        self.log_bytes(&stream, &bytes)
    }
    fn flush(&mut self, _: Resource<DynOutputStream>) -> StreamResult<()> {
        self.enter_stream()
    }
    fn blocking_flush(&mut self, _: Resource<DynOutputStream>) -> StreamResult<()> {
        self.enter_stream()
    }
    fn write_zeroes(&mut self, _: Resource<DynOutputStream>, _: u64) -> StreamResult<()> {
        self.enter_stream()
    }
    fn blocking_write_zeroes_and_flush(&mut self, _: Resource<DynOutputStream>, _: u64) -> StreamResult<()> {
        self.enter_stream()
    }
    fn splice(&mut self, _: Resource<DynOutputStream>, _: Resource<DynInputStream>, _: u64) -> StreamResult<u64> {
        self.enter_stream()?;
        Err(StreamError::Closed)
    }
    fn blocking_splice(
        &mut self,
        _: Resource<DynOutputStream>,
        _: Resource<DynInputStream>,
        _: u64,
    ) -> StreamResult<u64> {
        self.enter_stream()?;
        Err(StreamError::Closed)
    }
    fn subscribe(&mut self, _: Resource<DynOutputStream>) -> Result<Resource<DynPollable>> {
        self.pollable(0)
    }
    fn drop(&mut self, _: Resource<DynOutputStream>) -> Result<()> {
        Ok(())
    }
}

impl cli::environment::Host for Call {
    fn get_environment(&mut self) -> Result<Vec<(String, String)>> {
        self.enter_wasi()?;
        Ok(Vec::new())
    }
    fn get_arguments(&mut self) -> Result<Vec<String>> {
        self.enter_wasi()?;
        Ok(Vec::new())
    }
    fn initial_cwd(&mut self) -> Result<Option<String>> {
        self.enter_wasi()?;
        Ok(None)
    }
}

impl cli::exit::Host for Call {
    fn exit(&mut self, status: Result<(), ()>) -> Result<()> {
        Err(Exit(u8::from(status.is_err())).into())
    }
    fn exit_with_code(&mut self, status: u8) -> Result<()> {
        Err(Exit(status).into())
    }
}

impl cli::stdin::Host for Call {
    fn get_stdin(&mut self) -> Result<Resource<DynInputStream>> {
        self.enter_wasi()?;
        Ok(Resource::new_own(STDIN))
    }
}
impl cli::stdout::Host for Call {
    fn get_stdout(&mut self) -> Result<Resource<DynOutputStream>> {
        self.enter_wasi()?;
        Ok(Resource::new_own(STDOUT))
    }
}
impl cli::stderr::Host for Call {
    fn get_stderr(&mut self) -> Result<Resource<DynOutputStream>> {
        self.enter_wasi()?;
        Ok(Resource::new_own(STDERR))
    }
}
impl cli::terminal_stdin::Host for Call {
    fn get_terminal_stdin(&mut self) -> Result<Option<Resource<cli::terminal_input::TerminalInput>>> {
        self.enter_wasi()?;
        Ok(None)
    }
}
impl cli::terminal_stdout::Host for Call {
    fn get_terminal_stdout(&mut self) -> Result<Option<Resource<cli::terminal_output::TerminalOutput>>> {
        self.enter_wasi()?;
        Ok(None)
    }
}
impl cli::terminal_stderr::Host for Call {
    fn get_terminal_stderr(&mut self) -> Result<Option<Resource<cli::terminal_output::TerminalOutput>>> {
        self.enter_wasi()?;
        Ok(None)
    }
}

impl clocks::monotonic_clock::Host for Call {
    fn now(&mut self) -> Result<u64> {
        self.enter_wasi()?;
        Ok(self.wasi.monotonic)
    }
    fn resolution(&mut self) -> Result<u64> {
        self.enter_wasi()?;
        Ok(1)
    }
    fn subscribe_instant(&mut self, when: u64) -> Result<Resource<DynPollable>> {
        self.pollable(when)
    }
    fn subscribe_duration(&mut self, duration: u64) -> Result<Resource<DynPollable>> {
        self.pollable(self.wasi.monotonic.saturating_add(duration))
    }
}

impl clocks::wall_clock::Host for Call {
    fn now(&mut self) -> Result<clocks::wall_clock::Datetime> {
        self.enter_wasi()?;
        // WASI cannot say times before 1970.
        let micros = u64::try_from(self.wasi.wall.micros()).unwrap_or(0);
        Ok(clocks::wall_clock::Datetime {
            seconds: micros / 1_000_000,
            nanoseconds: (micros % 1_000_000) as u32 * 1_000,
        })
    }
    fn resolution(&mut self) -> Result<clocks::wall_clock::Datetime> {
        self.enter_wasi()?;
        Ok(clocks::wall_clock::Datetime { seconds: 0, nanoseconds: 1_000 })
    }
}

impl filesystem::preopens::Host for Call {
    fn get_directories(&mut self) -> Result<Vec<(Resource<wasmtime_wasi::filesystem::Descriptor>, String)>> {
        self.enter_wasi()?;
        Ok(Vec::new())
    }
}

impl random::random::Host for Call {
    fn get_random_bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.random_bytes(len)
    }
    fn get_random_u64(&mut self) -> Result<u64> {
        self.enter_wasi()?;
        Ok(self.wasi.number())
    }
}
impl random::insecure::Host for Call {
    fn get_insecure_random_bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.random_bytes(len)
    }
    fn get_insecure_random_u64(&mut self) -> Result<u64> {
        self.enter_wasi()?;
        Ok(self.wasi.number())
    }
}
impl random::insecure_seed::Host for Call {
    fn insecure_seed(&mut self) -> Result<(u64, u64)> {
        self.enter_wasi()?;
        Ok((self.wasi.number(), self.wasi.number()))
    }
}
