import { LayerId, SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { isPartKey, manifestKey, newPartKey, type PartRole } from "../../src/persistence/checkpoint-keys.ts";

const sandboxId = SandboxId.parse("a".repeat(20));
const sha256 = "0123456789abcdef".repeat(4);
const original = { sizeBytes: 3, sha256 };
const layer = (id: string): PartRole => ({ kind: "layer", layer: { id: LayerId.parse(id), ...original } });

const roles: PartRole[] = [
  { kind: "memory", sandboxId, n: 1, name: "checkpoint.img" },
  { kind: "memory", sandboxId, n: 999_999_999, name: "pages_meta.img" },
  { kind: "owner", sandboxId, n: 12 },
  layer(`${sandboxId}-1`),
  layer(`${sandboxId}-12-merged`),
  layer(`files-${sha256}`),
];

test.for(roles)("the key of a part is recognized: %j", (role) => {
  for (const encoding of ["plain", "br"] as const) {
    expect(isPartKey(newPartKey(role, original, encoding, sha256))).toBe(true);
  }
});

const name = `${sha256}.plain.${sha256}.01234567`;
const memory = `checkpoints/${sandboxId}/1/memory/checkpoint.img`;

test.for([
  "checkpoints/epoch-10.pt",
  "layers/0.weight",
  "layers/",
  manifestKey(sandboxId, 1),
  `checkpoints/${sandboxId}/1/notes.txt`,
  `checkpoints/${sandboxId}/0/owner/${name}`,
  `checkpoints/${sandboxId}/01/owner/${name}`,
  `checkpoints/${sandboxId}b/1/owner/${name}`,
  `checkpoints/run-1/1/owner/${name}`,
  `checkpoints/${sandboxId}/1/owner/x/${name}`,
  `checkpoints/${sandboxId}/1/memory/${name}`,
  `checkpoints/${sandboxId}/1/memory/Image/${name}`,
  `${memory}/${name}.bak`,
  `${memory}/${name}\n`,
  `${memory}/${name.replace("plain", "zip")}`,
  `${memory}/${name.toUpperCase()}`,
  `${memory}/_SUCCESS`,
  `a/${memory}/${name}`,
  `layers/${sandboxId}/${name}`,
  `layers/conv2d/${name}`,
  `layers/${sandboxId}-1/${sandboxId}-1/${name}`,
  `layers/${sandboxId}-1/`,
])("%j is not the key of a part", (key) => {
  expect(isPartKey(key)).toBe(false);
});
