import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

export interface Machine {
  /** The same after a restart. If the system's file for it is empty or missing, the machine has no name. */
  id: string;
  /** A new value after each restart. It is the same in all containers of a machine. */
  boot: string;
}

let known: Machine | undefined;

/** Returns short names for the machine and its present boot, derived from what the system reports about them. */
export function thisMachine(): Machine {
  known ??= { id: shortName("/etc/machine-id"), boot: shortName("/proc/sys/kernel/random/boot_id") };
  return known;
}

const nameless = "0".repeat(12);

function shortName(path: string): string {
  let text = "";
  try {
    text = readFileSync(path, "utf8").trim();
  } catch {
    return nameless;
  }
  return text === "" ? nameless : createHash("sha256").update(text).digest("hex").slice(0, 12);
}

/** True when `machine` is an earlier boot of the machine `here`. False also when that cannot be known. */
export function isEarlierRun(machine: Machine, here: Machine): boolean {
  return machine.id !== nameless && machine.id === here.id && machine.boot !== here.boot;
}
