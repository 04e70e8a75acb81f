import { type Finding, missing, ok, warning } from "./finding.ts";

/** The functions in this file decide from their arguments, without reading anything from the machine. */

const everything = "all sandboxes";
const minimumNode = "20.19";
/**
 * The launcher needs `openat2`, without which it mounts nothing, and `close_range`, so that it passes no descriptor on.
 */
const minimumKernel = "5.9";

export function judgeKernel(platform: string, release: string): Finding {
  const found = `${platform} ${release}`;
  if (platform === "linux" && isAtLeast(release, minimumKernel)) return ok("Linux kernel", found, everything);
  return missing("Linux kernel", {
    found,
    needs: `Linux ${minimumKernel} or newer`,
    fix: "Use a machine, or a virtual machine, with a newer Linux.",
    affects: everything,
  });
}

export function judgeNode(version: string): Finding {
  if (isAtLeast(version, minimumNode)) return ok("Node.js", version, everything);
  const fix = "Install a newer Node.js, from the distribution or from nodejs.org.";
  return missing("Node.js", { found: version, needs: `${minimumNode} or newer`, fix, affects: everything });
}

/** Bits of capabilities(7), and what each is for. */
const neededCapabilities = [
  { name: "CAP_CHOWN", bit: 0 },
  { name: "CAP_DAC_OVERRIDE", bit: 1 },
  { name: "CAP_FOWNER", bit: 3 },
  { name: "CAP_KILL", bit: 5 },
  { name: "CAP_SETGID", bit: 6 },
  { name: "CAP_SETUID", bit: 7 },
  { name: "CAP_NET_ADMIN", bit: 12 },
  { name: "CAP_SYS_CHROOT", bit: 18 },
  { name: "CAP_SYS_PTRACE", bit: 19 },
  { name: "CAP_SYS_ADMIN", bit: 21 },
  { name: "CAP_MKNOD", bit: 27 },
] as const;

/** `status` is the text of /proc/self/status. */
export function judgeCapabilities(status: string): Finding {
  const name = "root's capabilities";
  const mask = /^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1];
  const effective = BigInt(`0x${mask ?? "0"}`);
  const lacking = neededCapabilities.filter(({ bit }) => (effective & (1n << BigInt(bit))) === 0n);
  if (lacking.length === 0) return ok(name, "all that are needed", everything);
  return missing(name, {
    found:
      lacking.length === neededCapabilities.length ? "none" : `without ${lacking.map((one) => one.name).join(", ")}`,
    needs: neededCapabilities.map((one) => one.name).join(", "),
    fix: "Run as root (sudo); in a container, start that with --privileged.",
    affects: everything,
  });
}

/** `filesystems` is the text of /proc/filesystems. */
export function judgeOverlay(filesystems: string): Finding {
  if (/\boverlay$/m.test(filesystems)) return ok("overlayfs", "in the kernel", everything);
  return missing("overlayfs", {
    found: "not in the kernel",
    needs: "overlayfs",
    fix: "modprobe overlay",
    affects: everything,
  });
}

/** Filesystems that cannot store what a sandbox writes, by the magic number of statfs(2). */
const unfitFilesystems = new Map([
  [0x794c7630, "overlayfs"],
  [0x6969, "NFS"],
  [0x4d44, "FAT"],
  [0x65735546, "FUSE"],
  [0xff534d42, "CIFS"],
]);

const GiB = 1024 ** 3;
const fewBytes = 2 * GiB;
const fewInodes = 100_000;

export interface DiskFacts {
  path: string;
  type: number;
  freeBytes: number;
  freeInodes: number;
  /** This is 0 where the filesystem does not count inodes. */
  totalInodes: number;
}

export function judgeDisk({ path, type, freeBytes, freeInodes, totalInodes }: DiskFacts): Finding {
  const name = "data directory";
  const unfit = unfitFilesystems.get(type);
  const affects = everything;
  if (unfit !== undefined) {
    const fix = "Put the data directory on a local ext4, xfs or btrfs; in a container, on a volume.";
    return missing(name, {
      found: `${path} is on ${unfit}`,
      needs: "a filesystem that can be overlayfs's upper layer",
      fix,
      affects,
    });
  }
  const found = `${path}: ${(freeBytes / GiB).toFixed(1)} GiB free`;
  const isScarce = freeBytes < fewBytes || (totalInodes > 0 && freeInodes < fewInodes);
  if (!isScarce) return ok(name, found, affects);
  return warning(name, {
    found: `${found}, ${freeInodes} inodes`,
    needs: `${fewBytes / GiB} GiB and ${fewInodes} inodes`,
    fix: "Free some space, or choose a data directory on a larger disk.",
    affects: "sandboxes that write much",
  });
}

const wantedPipeBytes = 1024 * 1024;

/** `text` is the text of /proc/sys/fs/pipe-max-size. */
export function judgePipes(text: string): Finding {
  const bytes = Number(text);
  if (bytes >= wantedPipeBytes) return ok("FIFO size", `up to ${bytes} bytes`, "the speed of output");
  return warning("FIFO size", {
    found: `up to ${bytes} bytes`,
    needs: `${wantedPipeBytes} bytes`,
    fix: `sysctl -w fs.pipe-max-size=${wantedPipeBytes}`,
    affects: "the speed of output",
  });
}

const wantedFiles = 4096;

/** `limits` is the text of /proc/self/limits. */
export function judgeOpenFiles(limits: string): Finding {
  const name = "open files";
  const affects = "many sandboxes at one time";
  const soft = /^Max open files\s+(\d+|unlimited)/m.exec(limits)?.[1] ?? "0";
  if (soft === "unlimited" || Number(soft) >= wantedFiles) return ok(name, `up to ${soft}`, affects);
  return warning(name, {
    found: `up to ${soft}`,
    needs: String(wantedFiles),
    fix: "ulimit -n 65536, or LimitNOFILE= in the service",
    affects,
  });
}

function isAtLeast(version: string, wanted: string): boolean {
  const [major = 0, minor = 0] = version.split(/[.-]/).map(Number);
  const [wantedMajor = 0, wantedMinor = 0] = wanted.split(".").map(Number);
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}
