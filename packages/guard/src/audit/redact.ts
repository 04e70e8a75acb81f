const redacted = "[redacted]";
/** A name that shows that its value is secret. */
const secretName = /(token|secret|password|passwd|authorization|cookie|credential|api[_-]?key|private[_-]?key|stdin)/i;
/** The values of variables are left out; their names are enough for an audit. */
const environmentName = /^env$/i;
/** Text that is a secret wherever it is found: our own tokens and keys, bearer headers, passwords in addresses. */
const secretText = /\b(?:atoll|atk|sbt)_[A-Za-z0-9_-]{16,}|\bBearer\s+\S+|(?<=:\/\/[^/\s:@]*:)[^/\s@]+(?=@)/g;
const longestText = 1_000;

/** Returns a copy without secrets, for a log that outlives everything that it describes. */
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
