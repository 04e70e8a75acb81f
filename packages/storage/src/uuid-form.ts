/** What `randomUUID` makes, as a part of a regular expression: names with one in them are ours. */
export const uuidForm = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
