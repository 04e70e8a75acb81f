import type { SandboxLimits } from "@atoll/protocol";
import type { ImageNeeds } from "../driver.ts";

/**
 * What root inside may do; the same set as the default of other container engines. Checked by gVisor's kernel, never by
 * the host's.
 */
const rootCapabilities = [
  "CAP_AUDIT_WRITE",
  "CAP_CHOWN",
  "CAP_DAC_OVERRIDE",
  "CAP_FOWNER",
  "CAP_FSETID",
  "CAP_KILL",
  "CAP_MKNOD",
  "CAP_NET_BIND_SERVICE",
  "CAP_SETFCAP",
  "CAP_SETGID",
  "CAP_SETPCAP",
  "CAP_SETUID",
  "CAP_SYS_CHROOT",
  "CAP_SYS_PTRACE",
];

/** The guest alone: host name after a fork, limits of other processes. It takes them from everything that it starts. */
const guestCapabilities = ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"];

/** Where the guest's layer puts the guest. */
export const guestInside = "/.atoll/guest";

export interface OciSpecOptions {
  rootfs: string;
  hostname: string;
  limits: SandboxLimits;
  needs: ImageNeeds;
  /** By the names that runsc gives them. */
  shownFeatures?: readonly string[] | undefined;
}

/** Where the specification says which guest the container has, and how its system calls are caught. */
export const guestAnnotation = "atoll.guest";
export const platformAnnotation = "atoll.platform";

/** What runsc hides all other features of the processor for. */
const featuresAnnotation = "dev.gvisor.internal.cpufeatures";

export function ociSpec({ rootfs, hostname, limits, needs, shownFeatures }: OciSpecOptions): object {
  const capabilities = [...rootCapabilities, ...guestCapabilities];
  return {
    ociVersion: "1.0.2",
    process: {
      user: { uid: 0, gid: 0 },
      args: [guestInside, "init"],
      env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
      cwd: "/",
      capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
      rlimits: [{ type: "RLIMIT_NOFILE", soft: 16_384, hard: 16_384 }],
      noNewPrivileges: false,
    },
    root: { path: rootfs, readonly: false },
    hostname,
    annotations: {
      [guestAnnotation]: needs.guest,
      [platformAnnotation]: needs.platform,
      ...(shownFeatures === undefined ? {} : { [featuresAnnotation]: shownFeatures.join(",") }),
    },
    mounts: [
      { destination: "/proc", type: "proc", source: "proc" },
      { destination: "/dev", type: "tmpfs", source: "tmpfs" },
      { destination: "/dev/shm", type: "tmpfs", source: "tmpfs", options: [`size=${limits.tmpBytes}`, "mode=1777"] },
      { destination: "/sys", type: "sysfs", source: "sysfs", options: ["ro"] },
      // An empty /tmp would get a tmpfs without a limit by itself.
      { destination: "/tmp", type: "tmpfs", source: "tmpfs", options: [`size=${limits.tmpBytes}`, "mode=1777"] },
    ],
    linux: {
      namespaces: ["pid", "network", "ipc", "uts", "mount"].map((type) => ({ type })),
    },
  };
}
