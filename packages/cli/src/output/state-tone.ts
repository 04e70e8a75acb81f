import type { SandboxState } from "@atoll/protocol";
import type { Tone } from "./style.ts";

export function toneOfState(state: SandboxState): Tone {
  switch (state) {
    case "running":
      return "good";
    case "creating":
    case "pausing":
    case "resuming":
    case "killing":
      return "busy";
    case "paused":
    case "killed":
    case "released":
      return "quiet";
    case "failed":
      return "bad";
  }
}
