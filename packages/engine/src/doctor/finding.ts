/** One thing that sandboxes need of the machine. */
export interface Finding {
  name: string;
  /** "warning": works, but less well or for less; "missing": what it affects does not work. */
  status: "ok" | "warning" | "missing";
  /** What there is. */
  found: string;
  needs?: string;
  /** A command, or what else to do. */
  fix?: string;
  /** What does not work without it. */
  affects: string;
}

export function ok(name: string, found: string, affects: string): Finding {
  return { name, status: "ok", found, affects };
}

export interface Problem {
  found: string;
  needs: string;
  fix: string;
  affects: string;
}

export function warning(name: string, problem: Problem): Finding {
  return { name, status: "warning", ...problem };
}

export function missing(name: string, problem: Problem): Finding {
  return { name, status: "missing", ...problem };
}
