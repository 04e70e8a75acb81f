/** Shows control characters instead of sending them to the terminal: names and messages are not trusted. */
export function printable(text: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  return text.replaceAll(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, (character) => {
    if (character === "\n") return String.raw`\n`;
    if (character === "\t") return String.raw`\t`;
    const code = character.charCodeAt(0);
    return code < 0x100 ? String.raw`\x${code.toString(16).padStart(2, "0")}` : String.raw`\u${code.toString(16)}`;
  });
}
