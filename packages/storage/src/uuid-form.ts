/** The form of a `randomUUID`, as a part of a regular expression. A name that contains one is ours. */
export const uuidForm = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
