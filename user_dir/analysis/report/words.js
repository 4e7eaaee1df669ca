// Words instead of pieces: weights are summed over the pieces of a key, and averaged over the pieces of a query.

// The indices of the pieces of each word. Words are separated by spaces; </s> is a word of its own.
function wordsOf(tokens) {
  const begins = (index) => index === 0 || tokens[index] === "</s>" || tokens[index - 1] === "</s>"
    || tokens[index].startsWith("▁");
  const words = [];
  tokens.forEach((_, index) => (begins(index) ? words.push([index]) : words.at(-1).push(index)));
  return words;
}

// What the explorer shows of a sentence: its tokens or its words, and the indices of the pieces of each.
function viewOf(sentence, inWords) {
  const whole = inWords && sentence.target.at(-1) === "</s>"; // else the decoder reads a part of the last word
  const split = (tokens) => (whole ? wordsOf(tokens) : tokens.map((_, index) => [index]));
  const [source, written] = [split(sentence.source), split(sentence.target)];
  // The decoder reads </s>, then each word but the last that it has written.
  const read = [[0], ...written.slice(0, -1).map((pieces) => pieces.map((index) => index + 1))];
  const text = (tokens, groups) => (whole
    ? groups.map((pieces) => joined(pieces.map((index) => tokens[index])) || tokens[pieces[0]]) : tokens);
  const groups = {
    encoder_self: { queries: source, keys: source },
    decoder_self: { queries: written, keys: read },
    decoder_context: { queries: written, keys: source },
  };
  return {
    words: whole, groups,
    source: text(sentence.source, source),
    target_input: text(sentence.target_input, read),
    target: text(sentence.target, written),
    // The row of the query that contains a piece.
    rowOf: (type, piece) => Math.max(0, groups[type].queries.findIndex((pieces) => pieces.includes(piece))),
    // The number of keys that a query can see.
    possible: (type, row) => (type === "decoder_self"
      ? read.filter((pieces) => pieces[0] <= written[row].at(-1)).length : source.length),
    // Convert a map between pieces to a map between words.
    merge(type, map) {
      if (!whole) return map;
      const { queries, keys } = groups[type];
      const width = sidesOf(sentence, type).keys.length;
      const merged = new Float32Array(queries.length * keys.length);
      queries.forEach((rows, query) => keys.forEach((columns, key) => {
        for (const row of rows) {
          for (const column of columns) merged[query * keys.length + key] += map[row * width + column] / rows.length;
        }
      }));
      return merged;
    },
  };
}
