/** The settings of a server that somebody else runs, or nothing when one of them is missing. */
export function outsideServer(kind: string, names: readonly string[]): Record<string, string> | undefined {
  const settings = names.map((name) => [name, process.env[`ATOLL_TEST_${kind}_${name}`] ?? ""] as const);
  return settings.every(([, value]) => value !== "") ? Object.fromEntries(settings) : undefined;
}
