/** One thing that sandboxes need of the machine. */
export interface Finding {
  name: string;
  /** "warning": it works, but less well or not for everything; "missing": what it affects does not work. */
  status: "ok" | "warning" | "missing";
  /** What the machine has. */
  found: string;
  needs?: string;
  /** A command, or another way to fix it. */
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
