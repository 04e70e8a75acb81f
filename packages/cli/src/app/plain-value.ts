/** A value of an app as JSON for people and programs: what JSON does not have becomes the nearest thing that it has. */
export function plainValue(value: unknown): unknown {
  if (typeof value === "bigint") return value.toString();
  if (typeof value !== "object" || value === null) return value ?? null;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  if (value instanceof RegExp) return String(value);
  if (value instanceof Error) return { name: value.name, message: value.message };
  if (value instanceof Map) {
    const entries = [...value].map(([key, each]) => [plainValue(key), plainValue(each)] as const);
    return entries.every(([key]) => typeof key === "string") ? Object.fromEntries(entries) : entries;
  }
  if (value instanceof ArrayBuffer) return Buffer.from(value).toString("base64");
  if (ArrayBuffer.isView(value)) {
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
  }
  if (Array.isArray(value) || value instanceof Set) return [...value].map(plainValue);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plainValue(each)]));
}
