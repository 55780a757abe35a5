//! Which file systems may hold a ledger, and how much room is left on one.

use std::path::Path;

use weir_model::{Fault, Retry};

use crate::store::{io_fault, ledger_fault};

/// Refuses file systems whose syncs and locks cannot be relied on.
pub(crate) fn check(dir: &Path) -> Result<(), Fault> {
    let at = |e: rustix::io::Errno| io_fault("cannot tell the ledger's file system", &e.into());
    let magic = magic(dir).map_err(at)?;
    let name = mounted_as(dir);
    match refused(magic, name.as_deref()) {
        None => Ok(()),
        Some(what) => Err(ledger_fault(format_args!(
            "the data folder {} is on {what}, where a sync or a lock may be lost",
            dir.display()
        ))
        .retry(Retry::Never)
        .fix("put the data folder on a local disk")),
    }
}

/// Bytes that this process may still write there.
pub(crate) fn free_bytes(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(target_os = "linux")]
fn magic(dir: &Path) -> Result<u64, rustix::io::Errno> {
    // The type's sign and width differ between machines; all magic numbers have 32 bits.
    Ok(u64::from(rustix::fs::statfs(dir)?.f_type as u32))
}

#[cfg(not(target_os = "linux"))]
fn magic(_dir: &Path) -> Result<u64, rustix::io::Errno> {
    Ok(0)
}

/// The type's name in the mount table, which tells FUSE file systems apart; none where it cannot be read.
fn mounted_as(dir: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let dev = std::fs::metadata(dir).ok()?.dev();
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    type_of(&table, rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// The type of the mount with this device number in a `mountinfo` table.
fn type_of(table: &str, major: u32, minor: u32) -> Option<String> {
    let device = format!("{major}:{minor}");
    table.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        (mount.split(' ').nth(2)? == device).then(|| source.split(' ').next().unwrap_or_default().to_owned())
    })
}

/// Why a file system may not hold a ledger: its name, or none when it may. Magic numbers as in Linux's `statfs(2)`.
fn refused(magic: u64, mounted_as: Option<&str>) -> Option<String> {
    let network = match magic {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x0102_1997 => "9P",
        0x5346_414f => "AFS",
        0x7375_7245 => "Coda",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x786f_4256 => "a VirtualBox share",
        0x6573_5546 => {
            // FUSE says nothing of what is behind it. Only what is known to be a disk of this machine passes.
            return match mounted_as {
                Some("fuseblk" | "fuse.fuse-overlayfs" | "virtiofs") => None,
                Some(name) => Some(format!("the FUSE file system {name}")),
                None => Some("a FUSE file system".to_owned()),
            };
        }
        _ => return None,
    };
    Some(network.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_remote_and_takes_what_is_local() {
        for (magic, name) in [
            (0xef53, Some("ext4")),
            (0x5846_5342, Some("xfs")),
            (0x9123_683e, Some("btrfs")),
            (0x0102_1994, Some("tmpfs")),
            (0x794c_7630, Some("overlay")),
            (0x6573_5546, Some("fuseblk")),
            (0x6573_5546, Some("virtiofs")),
        ] {
            assert_eq!(refused(magic, name), None, "{name:?}");
        }
        for (magic, name, what) in [
            (0x6969, Some("nfs4"), "NFS"),
            (0xff53_4d42, Some("cifs"), "CIFS"),
            (0xfe53_4d42, None, "SMB2"),
            (0x6573_5546, Some("fuse.sshfs"), "the FUSE file system fuse.sshfs"),
            (0x6573_5546, None, "a FUSE file system"),
        ] {
            assert_eq!(refused(magic, name).as_deref(), Some(what));
        }
    }

    #[test]
    fn finds_the_type_of_a_mount() {
        let table = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                     36 22 0:31 / /mnt/s rw shared:2 master:1 - fuse.sshfs me@host:/ rw\n";
        assert_eq!(type_of(table, 254, 0).as_deref(), Some("ext4"));
        assert_eq!(type_of(table, 0, 31).as_deref(), Some("fuse.sshfs"));
        assert_eq!(type_of(table, 0, 3), None);
    }

    #[test]
    fn the_disk_of_the_tests_is_local_and_has_room() {
        let dir = std::env::temp_dir();
        check(&dir).expect("a local disk");
        assert!(free_bytes(&dir).is_some_and(|b| b > 0));
    }
}
