import type { Files } from "@atoll/sdk";
import type { Cli } from "../cli.ts";

/** One copy between this machine and a sandbox. */
export interface Transfer {
  cli: Cli;
  files: Files;
  user: string;
  onBytes: (bytes: number) => void;
  onSkipped: (path: string) => void;
}

export interface Transferred {
  files: number;
  bytes: number;
}
