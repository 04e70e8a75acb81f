import { randomBytes } from "node:crypto";
import { ContainerId, SandboxId } from "@atoll/protocol";

const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789";

export function newSandboxId(): SandboxId {
  return SandboxId.parse(randomText(20));
}

export function newContainerId(): ContainerId {
  return ContainerId.parse(`atoll-${randomText(24)}`);
}

/** Every character is equally likely: bytes that would favour the first ones are thrown away. */
function randomText(length: number): string {
  const limit = 256 - (256 % alphabet.length);
  let text = "";
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      if (byte < limit && text.length < length) text += alphabet[byte % alphabet.length];
    }
  }
  return text;
}
