/** How many bytes are converted at once: a call accepts only so many arguments. */
const pieceBytes = 0x8000;

export function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    binary += String.fromCodePoint(...bytes.subarray(at, at + pieceBytes));
  }
  return btoa(binary);
}

export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.codePointAt(0) ?? 0);
}
