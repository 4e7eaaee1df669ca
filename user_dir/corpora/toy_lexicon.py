"""The lexicon of the toy corpus: nouns, compounds, adjectives and verbs, in German and English.

Kinds restrict which words can be combined, so that nobody opens a horse: a verb lists the kinds of its
subjects and objects, an adjective the kinds of nouns that it describes.
"""

from __future__ import annotations

from dataclasses import dataclass

LIVING = ("person", "animal")
THINGS = ("portable", "furniture", "opening", "building")
ANYTHING = (*LIVING, *THINGS, "plant")


@dataclass(frozen=True)
class Noun:
    """A noun with its gender (m, f, n), its irregular German forms, and its English forms."""

    nominative: str
    gender: str
    genitive: str
    plural: str
    english: str
    english_plural: str
    kind: str

    @property
    def dative_plural(self) -> str:
        """The plural, with -n unless it ends in -n or -s."""
        return self.plural if self.plural[-1] in "ns" else self.plural + "n"


@dataclass(frozen=True)
class Adjective:
    """An adjective by its German stem, to which endings are added."""

    stem: str
    english: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Verb:
    """A verb: infinitive without particle, third person singular, separable particle, English base form."""

    infinitive: str
    third: str
    particle: str
    english: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...] = ()
    frame: str = "accusative"  # intransitive, accusative, dative, or both (dative and accusative)


def english_s(word: str) -> str:
    """The -s of English plurals and third persons: apple → apples, bench → benches, carry → carries."""
    if word.endswith(("s", "sh", "ch", "x")):
        return word + "es"
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _nouns(kind: str, table: str) -> list[Noun]:
    nouns = []
    for line in table.split("\n"):
        if line.strip():
            german, gender, genitive, plural, english, *irregular = line.split()
            english_plural = irregular[0] if irregular else english_s(english)
            nouns.append(Noun(german, gender, genitive, plural, english, english_plural, kind))
    return nouns


SIMPLE_NOUNS = [
    *_nouns(
        "person",
        """
        König m Königs Könige king
        Koch m Kochs Köche cook
        Gärtner m Gärtners Gärtner gardener
        Maler m Malers Maler painter
        Sohn m Sohnes Söhne son
        Königin f Königin Königinnen queen
        Lehrerin f Lehrerin Lehrerinnen teacher
        Tochter f Tochter Töchter daughter
        Tänzerin f Tänzerin Tänzerinnen dancer
        Kind n Kindes Kinder child children
        Mädchen n Mädchens Mädchen girl
        """,
    ),
    *_nouns(
        "animal",
        """
        Hund m Hundes Hunde dog
        Vogel m Vogels Vögel bird
        Katze f Katze Katzen cat
        Kuh f Kuh Kühe cow
        Ziege f Ziege Ziegen goat
        Pferd n Pferdes Pferde horse
        """,
    ),
    *_nouns(
        "portable",
        """
        Ball m Balls Bälle ball
        Apfel m Apfels Äpfel apple
        Brief m Briefs Briefe letter
        Schlüssel m Schlüssels Schlüssel key
        Korb m Korbs Körbe basket
        Blume f Blume Blumen flower
        Lampe f Lampe Lampen lamp
        Flasche f Flasche Flaschen bottle
        Karte f Karte Karten map
        Uhr f Uhr Uhren clock
        Glocke f Glocke Glocken bell
        Buch n Buches Bücher book
        Bild n Bildes Bilder picture
        Messer n Messers Messer knife knives
        """,
    ),
    *_nouns(
        "opening",
        """
        Tür f Tür Türen door
        Fenster n Fensters Fenster window
        Tor n Tores Tore gate
        """,
    ),
    *_nouns(
        "furniture",
        """
        Stuhl m Stuhls Stühle chair
        Tisch m Tisches Tische table
        Bank f Bank Bänke bench
        """,
    ),
    *_nouns(
        "building",
        """
        Turm m Turms Türme tower
        Laden m Ladens Läden shop
        Brücke f Brücke Brücken bridge
        Haus n Hauses Häuser house
        Boot n Bootes Boote boat
        Dach n Daches Dächer roof
        """,
    ),
    *_nouns("plant", "Baum m Baumes Bäume tree"),
]

OUTDOORS = _nouns(
    "place",
    """
    Garten m Gartens Gärten garden
    Wald m Waldes Wälder forest
    Hof m Hofes Höfe yard
    Dorf n Dorfes Dörfer village
    """,
)
INDOORS = _nouns(
    "place",
    """
    Küche f Küche Küchen kitchen
    Kirche f Kirche Kirchen church
    Scheune f Scheune Scheunen barn
    Haus n Hauses Häuser house
    Turm m Turms Türme tower
    """,
)

# First part of a compound, its English form, and the nouns it combines with: Apfel + Baum = Apfelbaum, apple
# tree.
COMPOUNDS = """
Apfel   apple       Baum Korb
Blumen  flower      Korb Bild Laden
Dorf    village     Laden Turm Glocke Tor Brücke Uhr
Fluss   river       Boot Brücke
Garten  garden      Tür Tor Bank Stuhl Tisch Haus Lampe Blume
Glas    glass       Tür Tisch Dach Turm
Gold    gold        Uhr Glocke Schlüssel
Holz    wooden      Haus Tür Brücke Boot Stuhl Tisch Bank Tor Turm Korb
Kinder  children's  Buch Stuhl Tisch Bild Uhr
Kirchen church      Tür Turm Glocke Uhr Fenster Bank Dach
Küchen  kitchen     Tür Tisch Stuhl Lampe Messer Uhr Fenster
Papier  paper       Boot Blume Lampe Korb
Scheunen barn       Tür Tor Dach Fenster
Schul   school      Buch Tür Uhr Glocke Bank
Silber  silver      Glocke Uhr Schlüssel Messer Lampe
Stadt   city        Tor Turm Karte
Stein   stone       Haus Brücke Turm Tisch Bank Tor
Turm    tower       Tür Uhr Fenster
Wald    forest      Haus Blume
"""


def _compounds(table: str) -> list[Noun]:
    heads = {noun.nominative: noun for noun in SIMPLE_NOUNS}
    compounds = []
    for line in table.split("\n"):
        if line.strip():
            first, english, *seconds = line.split()
            for head in (heads[second] for second in seconds):
                german = (first + form.lower() for form in (head.nominative, head.genitive, head.plural))
                nominative, genitive, plural = german
                forms = (f"{english} {form}" for form in (head.english, head.english_plural))
                compounds.append(Noun(nominative, head.gender, genitive, plural, *forms, head.kind))
    return compounds


COMPOUND_NOUNS = _compounds(COMPOUNDS)

SIZES = [
    Adjective("alt", "old", (*ANYTHING, "place")),
    Adjective("klein", "small", (*ANYTHING, "place")),
    Adjective("groß", "big", (*ANYTHING, "place")),
    Adjective("schön", "beautiful", (*ANYTHING, "place")),
    Adjective("neu", "new", THINGS),
    Adjective("schwer", "heavy", ("portable", "furniture")),
]
QUALITIES = [
    Adjective("jung", "young", (*LIVING, "plant")),
    Adjective("müd", "tired", LIVING),
    Adjective("hungrig", "hungry", LIVING),
    Adjective("klug", "clever", LIVING),
    Adjective("freundlich", "friendly", LIVING),
    Adjective("rot", "red", THINGS),
    Adjective("blau", "blue", THINGS),
    Adjective("grün", "green", (*THINGS, "plant")),
    Adjective("weiß", "white", (*THINGS, "animal")),
    Adjective("schwarz", "black", (*THINGS, "animal")),
]

PERSON, MOVABLE = ("person",), ("portable", "furniture")
VERBS = [
    Verb("sehen", "sieht", "", "see", LIVING, ANYTHING),
    Verb("suchen", "sucht", "", "look for", LIVING, ANYTHING),
    Verb("finden", "findet", "", "find", LIVING, ANYTHING),
    Verb("hören", "hört", "", "hear", LIVING, LIVING),
    Verb("malen", "malt", "", "paint", PERSON, ANYTHING),
    Verb("kaufen", "kauft", "", "buy", PERSON, MOVABLE),
    Verb("verkaufen", "verkauft", "", "sell", PERSON, MOVABLE),
    Verb("tragen", "trägt", "", "carry", PERSON, MOVABLE),
    Verb("lieben", "liebt", "", "love", PERSON, LIVING),
    Verb("rufen", "ruft", "", "call", PERSON, LIVING),
    Verb("putzen", "putzt", "", "clean", PERSON, ("furniture", "opening")),
    Verb("reparieren", "repariert", "", "repair", PERSON, ("furniture", "opening", "building")),
    Verb("bauen", "baut", "", "build", PERSON, ("furniture", "building")),
    Verb("machen", "macht", "auf", "open", PERSON, ("opening",)),
    Verb("machen", "macht", "zu", "close", PERSON, ("opening",)),
    Verb("werfen", "wirft", "weg", "throw away", PERSON, ("portable",)),
    Verb("holen", "holt", "ab", "pick up", PERSON, ("portable", "person")),
    Verb("packen", "packt", "ein", "pack", PERSON, ("portable",)),
    Verb("schauen", "schaut", "an", "look at", LIVING, ANYTHING),
    Verb("laden", "lädt", "ein", "invite", PERSON, PERSON),
    Verb("helfen", "hilft", "", "help", PERSON, LIVING, "dative"),
    Verb("danken", "dankt", "", "thank", PERSON, PERSON, "dative"),
    Verb("folgen", "folgt", "", "follow", LIVING, LIVING, "dative"),
    Verb("antworten", "antwortet", "", "answer", PERSON, PERSON, "dative"),
    Verb("geben", "gibt", "", "give", PERSON, ("portable",), "both"),
    Verb("zeigen", "zeigt", "", "show", PERSON, THINGS, "both"),
    Verb("schlafen", "schläft", "", "sleep", LIVING, (), "intransitive"),
    Verb("warten", "wartet", "", "wait", LIVING, (), "intransitive"),
    Verb("tanzen", "tanzt", "", "dance", PERSON, (), "intransitive"),
    Verb("lachen", "lacht", "", "laugh", PERSON, (), "intransitive"),
    Verb("singen", "singt", "", "sing", PERSON, (), "intransitive"),
    Verb("spielen", "spielt", "", "play", LIVING, (), "intransitive"),
    Verb("kommen", "kommt", "an", "arrive", LIVING, (), "intransitive"),
    Verb("stehen", "steht", "auf", "get up", LIVING, (), "intransitive"),
    Verb("wachen", "wacht", "auf", "wake up", LIVING, (), "intransitive"),
    Verb("laufen", "läuft", "weg", "run away", LIVING, (), "intransitive"),
]
MODALS = [
    Verb("können", "kann", "", "can", LIVING),
    Verb("müssen", "muss", "", "must", LIVING),
    Verb("dürfen", "darf", "", "may", LIVING),
    Verb("sollen", "soll", "", "should", LIVING),
    Verb("wollen", "will", "", "want to", LIVING),
]
SAYING = [  # with an object clause: dass … or a question
    Verb("glauben", "glaubt", "", "believe", PERSON),
    Verb("sagen", "sagt", "", "say", PERSON),
    Verb("hoffen", "hofft", "", "hope", PERSON),
    Verb("wissen", "weiß", "", "know", PERSON),
]
ASKING = [Verb("fragen", "fragt", "", "ask", PERSON), SAYING[-1]]

ADVERBS = [
    ("heute", "today"),
    ("jetzt", "now"),
    ("oft", "often"),
    ("manchmal", "sometimes"),
    ("jeden Tag", "every day"),
    ("am Morgen", "in the morning"),
    ("am Abend", "in the evening"),
    ("am Montag", "on Monday"),
    ("im Winter", "in winter"),
    ("im Sommer", "in summer"),
]
FREQUENCY = ("often", "sometimes")  # adverbs that precede the verb in English
PREPOSITIONS = [("in", "in"), ("hinter", "behind"), ("vor", "in front of"), ("neben", "next to")]  # + dative
CONJUNCTIONS = [("weil", "because"), ("wenn", "when"), ("obwohl", "although"), ("während", "while")]
COMPANIONABLE = ("dance", "laugh", "sing", "play")  # activities that can be done with somebody
INTERROGATIVES = [("wo", "where"), ("wann", "when"), ("warum", "why"), ("wie", "how")]
