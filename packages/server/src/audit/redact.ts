const redacted = "[redacted]";
/** What a name says about its value. */
const secretName = /(token|secret|password|passwd|authorization|cookie|credential|api[_-]?key|private[_-]?key|stdin)/i;
/** Values of variables are the caller's business; their names say enough. */
const environmentName = /^env$/i;
/** What looks like a secret wherever it stands: our own tokens and keys, bearer headers, passwords in addresses. */
const secretText = /\b(?:atoll|atk|sbt)_[A-Za-z0-9_-]{16,}|\bBearer\s+\S+|(?<=:\/\/[^/\s:@]*:)[^/\s@]+(?=@)/g;
const longestText = 1_000;

/** A copy without secrets, for a log that outlives everything it tells of. */
export function redact(value: unknown, name = ""): unknown {
  if (secretName.test(name)) return value === undefined ? undefined : redacted;
  if (typeof value === "string") {
    const text = value.replace(secretText, redacted);
    return text.length > longestText ? `${text.slice(0, longestText)}…` : text;
  }
  if (Array.isArray(value)) return value.map((item) => redact(item));
  if (typeof value !== "object" || value === null) return value;
  const isEnvironment = environmentName.test(name);
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, isEnvironment ? redacted : redact(inner, key)]),
  );
}
