import type { Tone } from "../output/style.ts";
import type { KnownApp } from "./app-requests.ts";

export function toneOfAppState(state: KnownApp["state"]): Tone {
  switch (state) {
    case "running":
      return "good";
    case "error":
    case "interrupted":
      return "bad";
    case "stopped":
      return "quiet";
    case "initializing":
    case "compiling":
    case "starting":
    case "reloading":
    case "stopping":
      return "busy";
  }
}
