/** An end of `atoll cp`: a path here, or one in a sandbox. */
export interface Place {
  /** Absent: the path is here. */
  sandbox: string | undefined;
  path: string;
}

/**
 * `<sandbox>:<path>` is inside, without a path its home directory. A path here that has a colon is written with a slash
 * before it: `./a:b`.
 */
export function parsePlace(text: string): Place {
  const [, sandbox, path] = /^([a-z0-9]+):(.*)$/s.exec(text) ?? [];
  if (sandbox === undefined) return { sandbox: undefined, path: text };
  return { sandbox, path: path === undefined || path === "" ? "." : path };
}
