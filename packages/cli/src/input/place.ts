/** The source or target of `atoll cp`: a path on this machine, or one in a sandbox. */
export interface Place {
  /** Undefined for a path on this machine. */
  sandbox: string | undefined;
  path: string;
}

/**
 * Parses `<sandbox>:<path>`, where an empty path is the home directory, or a path on this machine. A path here that
 * contains a colon needs a slash before the colon: `./a:b`.
 */
export function parsePlace(text: string): Place {
  const [, sandbox, path] = /^([a-z0-9]+):(.*)$/s.exec(text) ?? [];
  if (sandbox === undefined) return { sandbox: undefined, path: text };
  return { sandbox, path: path === undefined || path === "" ? "." : path };
}
