/** Returns the settings of a server that runs elsewhere, or undefined if one of them is missing. */
export function outsideServer(kind: string, names: readonly string[]): Record<string, string> | undefined {
  const settings = names.map((name) => [name, process.env[`ATOLL_TEST_${kind}_${name}`] ?? ""] as const);
  return settings.every(([, value]) => value !== "") ? Object.fromEntries(settings) : undefined;
}
