"""The words of the generated English-German corpus, as compact tables.

A row is one word. Its columns are separated by blanks; an underscore stands for a blank inside a column.
inflection.py parses the tables and inflects the words.
"""

# English singular and plural | German lemma, gender, genitive ending, plural | semantic classes.
# A '+' before the genitive ending marks a weak masculine noun, which takes the ending in every case but the
# nominative. '-' means no ending or no plural.
NOUNS = """
man men Mann m es Männer person,adult,unowned
woman women Frau f - Frauen person,adult,unowned
boy boys Junge m +n Jungen person,unowned
girl girls Mädchen n s Mädchen person,unowned
child children Kind n es Kinder person
teacher teachers Lehrer m s Lehrer person,adult
doctor doctors Arzt m es Ärzte person,adult
farmer farmers Bauer m +n Bauern person,adult,unowned
student students Student m +en Studenten person,adult,unowned
neighbor neighbors Nachbar m +n Nachbarn person,adult
queen queens Königin f - Königinnen person,adult,unowned
aunt aunts Tante f - Tanten person,adult
mother mothers Mutter f - Mütter person,adult
sister sisters Schwester f - Schwestern person,adult
guest guests Gast m es Gäste person,adult,unowned
animal animals Tier n es Tiere animal
dog dogs Hund m es Hunde animal,puller,pet
cat cats Katze f - Katzen animal,pet
horse horses Pferd n es Pferde animal,puller,pet
bird birds Vogel m s Vögel animal,pet
cow cows Kuh f - Kühe animal,puller,pet
fox foxes Fuchs m es Füchse animal
goat goats Ziege f - Ziegen animal,puller,pet
wolf wolves Wolf m es Wölfe animal
duck ducks Ente f - Enten animal,pet
pig pigs Schwein n es Schweine animal,pet
lion lions Löwe m +n Löwen animal
bear bears Bär m +en Bären animal,puller
monkey monkeys Affe m +n Affen animal
donkey donkeys Esel m s Esel animal,puller,pet
snake snakes Schlange f - Schlangen animal
goose geese Gans f - Gänse animal,pet
chicken chickens Huhn n es Hühner animal,pet
camel camels Kamel n s Kamele animal,puller
rabbit rabbits Kaninchen n s Kaninchen animal,pet
mouse mice Maus f - Mäuse animal
street streets Straße f - Straßen way,road,ground
bridge bridges Brücke f - Brücken way,road,ground,roof
meadow meadows Wiese f - Wiesen way,ground
river rivers Fluss m es Flüsse way
square squares Platz m es Plätze way,ground
path paths Weg m es Wege way,road,ground
field fields Feld n es Felder way,ground
valley valleys Tal n es Täler way
wall walls Mauer f - Mauern barrier,landmark
hedge hedges Hecke f - Hecken barrier,landmark
fence fences Zaun m es Zäune barrier,landmark
gate gates Tor n es Tore barrier,landmark,closable
house houses Haus n es Häuser shelter,place,landmark,building
barn barns Scheune f - Scheunen shelter,place,landmark
stable stables Stall m es Ställe shelter,place
cave caves Höhle f - Höhlen shelter
cage cages Käfig m s Käfige shelter
nest nests Nest n es Nester shelter
garden gardens Garten m s Gärten place,building
park parks Park m s Parks place
forest forests Wald m es Wälder place
school schools Schule f - Schulen place,landmark,building
kitchen kitchens Küche f - Küchen place
hotel hotels Hotel n s Hotels place,landmark,building
church churches Kirche f - Kirchen place,landmark,building
tree trees Baum m es Bäume landmark,roof
bed beds Bett n es Betten furniture,thing
sofa sofas Sofa n s Sofas furniture,thing
table tables Tisch m es Tische furniture,thing
chair chairs Stuhl m es Stühle furniture,thing
bread - Brot n es - food,mass
apple apples Apfel m s Äpfel food,piece
cheese - Käse m s - food,mass
meat - Fleisch n es - food,mass
egg eggs Ei n es Eier food,piece
sausage sausages Wurst f - Würste food,piece
potato potatoes Kartoffel f - Kartoffeln food,piece
cake cakes Kuchen m s Kuchen food,piece
water - Wasser n s - drink,mass
milk - Milch f - - drink,mass
coffee - Kaffee m s - drink,mass
bus buses Bus m ses Busse vehicle,awaited
car cars Auto n s Autos vehicle,owned
truck trucks Lastwagen m s Lastwagen vehicle,owned
train trains Zug m es Züge vehicle,awaited
tram trams Straßenbahn f - Straßenbahnen vehicle,awaited
bicycle bicycles Fahrrad n es Fahrräder vehicle,owned
taxi taxis Taxi n s Taxis vehicle,awaited
carriage carriages Kutsche f - Kutschen vehicle,owned,cart
cart carts Wagen m s Wagen cart
boat boats Boot n es Boote cart
suitcase suitcases Koffer m s Koffer container,closable,thing
bag bags Tasche f - Taschen container,closable,thing
box boxes Kiste f - Kisten container,closable,thing
basket baskets Korb m es Körbe container,thing
cupboard cupboards Schrank m es Schränke container,closable,furniture
barrel barrels Fass n es Fässer container
parcel parcels Paket n es Pakete container,gift
door doors Tür f - Türen closable
window windows Fenster n s Fenster closable,fragile
ball balls Ball m es Bälle item,thing,gift,missile
book books Buch n es Bücher item,thing,gift
picture pictures Bild n es Bilder item,thing,gift
hat hats Hut m es Hüte item,thing,gift
lamp lamps Lampe f - Lampen item,thing,gift
clock clocks Uhr f - Uhren item,thing,gift
key keys Schlüssel m s Schlüssel item,thing,gift
vase vases Vase f - Vasen item,thing,gift,fragile
bottle bottles Flasche f - Flaschen item,thing,fragile
glass glasses Glas n es Gläser item,fragile
mirror mirrors Spiegel m s Spiegel item,thing,fragile
stone stones Stein m es Steine missile
ladder ladders Leiter f - Leitern missile
board boards Brett n es Bretter missile
"""

# English | German predicative form | stem to which endings are added | noun classes that it can describe.
ADJECTIVES = """
tired müde müd person
sick krank krank person
hungry hungrig hungrig person
young jung jung adult
friendly freundlich freundlich person
clever klug klug person
old alt alt adult,animal,thing,owned,shelter,place
black schwarz schwarz animal,thing,owned,cart
white weiß weiß animal,thing,owned,furniture
brown braun braun animal,thing,furniture,cart
small klein klein animal,thing,owned,cart,place,barrier,way,piece,container,fragile
big groß groß animal,thing,owned,cart,place,barrier,way,piece,container,fragile
new neu neu thing,owned,container,awaited,furniture
beautiful schön schön thing,owned,place,way,fragile,gift
expensive teuer teur thing,owned,furniture,gift
warm warm warm mass
cold kalt kalt mass
fresh frisch frisch mass,piece
heavy schwer schwer missile
weak schwach schwach -
lazy faul faul -
wide breit breit -
dangerous gefährlich gefährlich -
dark dunkel dunkl -
full voll voll -
hot heiß heiß -
hard hart hart -
dry trocken trocken -
high hoch hoh -
shy scheu scheu -
safe sicher sicher -
narrow eng eng -
long lang lang -
angry wütend wütend -
wild wild wild -
slow langsam langsam -
fast schnell schnell -
strong stark stark -
curious neugierig neugierig -
loud laut laut -
awake wach wach -
near nah nah -
nervous nervös nervös -
brave mutig mutig -
thin dünn dünn -
"""

# English base, past | German infinitive ('+' after a separable prefix), third person singular
# present and preterite | subject classes | complements. A complement is case:classes or
# preposition_case:classes; 'place' is an adverbial of place, 'that' a that-clause, 'predicate' an adjective.
# Verbs without subject classes ('-') occur only in the scenes below, and 'sein' with predicate adjectives.
VERBS = """
see saw sehen sieht sah person,animal accusative:person,animal,vehicle
hear heard hören hört hörte person,animal accusative:person,animal
find found finden findet fand person accusative:item,pet,container place
meet met treffen trifft traf person accusative:person place
ask asked fragen fragt fragte person accusative:person
look_for looked suchen sucht suchte person accusative:item,pet,container
buy bought kaufen kauft kaufte person accusative:thing,owned,food
sell sold verkaufen verkauft verkaufte person accusative:thing,owned,pet
have had haben hat hatte person accusative:item,owned,pet
repair repaired reparieren repariert reparierte person accusative:owned,furniture
wash washed waschen wäscht wusch person accusative:owned,pet
carry carried tragen trägt trug person accusative:thing,gift
cook cooked kochen kocht kochte person accusative:food
eat ate essen isst aß person accusative:food
eat ate fressen frisst fraß animal accusative:food
drink drank trinken trinkt trank person accusative:drink
chase chased jagen jagt jagte animal accusative:animal
help helped helfen hilft half person dative:person,pet
thank thanked danken dankt dankte person dative:person
follow followed folgen folgt folgte person,animal dative:person,animal
trust trusted vertrauen vertraut vertraute person dative:person
belong_to belonged gehören gehört gehörte item,owned,pet dative:person
open opened auf+machen macht machte person accusative:closable
close closed zu+machen macht machte person accusative:closable
call called an+rufen ruft rief person accusative:person
pick_up picked ab+holen holt holte person accusative:person,gift
look_at looked an+sehen sieht sah person,animal accusative:person,animal,gift
throw_away threw weg+werfen wirft warf person accusative:item,food
listen_to listened zu+hören hört hörte person dative:person
wait_for waited warten wartet wartete person auf_accusative:person,awaited
think_of thought denken denkt dachte person an_accusative:person,pet
dream_of dreamed träumen träumt träumte person von_dative:person,owned,pet
talk_to talked sprechen spricht sprach person mit_dative:person
play_with played spielen spielt spielte person,pet mit_dative:person,pet
run_into ran laufen läuft lief person,animal in_accusative:place
go_to went gehen geht ging person zu_dative:building
walk_through walked gehen geht ging person durch_accusative:place
give gave geben gibt gab person dative:person accusative:gift,food
show showed zeigen zeigt zeigte person dative:person accusative:gift,owned
bring brought bringen bringt brachte person dative:person accusative:gift,food,drink
sleep slept schlafen schläft schlief person,animal place
sit sat sitzen sitzt saß person,animal place
stand stood stehen steht stand person,animal place
play played spielen spielt spielte person,pet place
work worked arbeiten arbeitet arbeitete person place
live lived wohnen wohnt wohnte person place
get_up got auf+stehen steht stand person
arrive arrived an+kommen kommt kam person,awaited
fall_asleep fell ein+schlafen schläft schlief person,pet
laugh laughed lachen lacht lachte person
know knew wissen weiß wusste person that
believe believed glauben glaubt glaubte person that
notice noticed merken merkt merkte person that
be was sein ist war - predicate
cross crossed überqueren überquert überquerte - accusative:way
fit_into fit passen passt passte - in_accusative:container
pull pulled ziehen zieht zog - accusative:cart
jump_over jumped springen springt sprang - über_accusative:barrier
leave left verlassen verlässt verließ - accusative:shelter
overtake overtook überholen überholt überholte - accusative:vehicle
break broke zerbrechen zerbricht zerbrach - accusative:fragile
fear feared fürchten fürchtet fürchtete - accusative:animal
catch caught fangen fängt fing - accusative:animal
bite bit beißen beißt biss - accusative:animal
attack attacked an+greifen greift griff - accusative:animal
protect protected schützen schützt schützte - accusative:animal
distrust distrusted misstrauen misstraut misstraute - dative:animal
"""

# Irregular present tenses: first, second and third person singular, then plural.
PRESENTS = """
sein bin bist ist sind seid sind
haben habe hast hat haben habt haben
wissen weiß weißt weiß wissen wisst wissen
können kann kannst kann können könnt können
müssen muss musst muss müssen müsst müssen
wollen will willst will wollen wollt wollen
sollen soll sollst soll sollen sollt sollen
"""

# Modal | German infinitive, preterite | English present (third person, others), past | the same
# negated. '-' stands for forms that the corpus does not use ('must not' would mean 'darf nicht').
MODALS = """
can können konnte can can could can't can't couldn't
must müssen musste must must had_to - - -
want wollen wollte wants_to want_to wanted_to doesn't_want_to don't_want_to didn't_want_to
should sollen sollte - - should - - shouldn't
"""

# English subject, object | person, number | German nominative, accusative, dative.
PRONOUNS = """
I me 1 s ich mich mir
you you 2 s du dich dir
he him 3 s er ihn ihm
she her 3 s sie sie ihr
we us 1 p wir uns uns
they them 3 p sie sie ihnen
"""

# German for 'it' by the gender of the noun it refers to: nominative, accusative, dative.
IT_FORMS = {'m': 'er ihn ihm', 'f': 'sie sie ihr', 'n': 'es es ihm'}

# English | German | tenses that it occurs with.
TIMES = """
yesterday gestern past
today heute past,present
now jetzt present
sometimes manchmal past,present
in_the_evening am_Abend past,present
in_the_morning am_Morgen past,present
in_the_summer im_Sommer past,present
at_night in_der_Nacht past,present
last_week letzte_Woche past
on_Monday am_Montag past
two_days_ago vor_zwei_Tagen past
every_day jeden_Tag past,present
during_the_break während_der_Pause past,present
after_the_meal nach_dem_Essen past,present
"""

# English | German preposition (all with the dative) | classes of the noun that follows.
PLACES = """
in in place
on auf ground
under unter roof
behind hinter landmark
next_to neben landmark,furniture
in_front_of vor landmark
"""

CONTRACTIONS = {'in dem': 'im', 'in das': 'ins', 'zu dem': 'zum', 'zu der': 'zur', 'von dem': 'vom'}

# English conjunction: German with past tense, with present tense, and position of the finite verb.
CONJUNCTIONS = {
    'because': ('weil', 'weil', 'last'),
    'although': ('obwohl', 'obwohl', 'last'),
    'when': ('als', 'wenn', 'last'),
    'while': ('während', 'während', 'last'),
    'before': ('bevor', 'bevor', 'last'),
    'that': ('dass', 'dass', 'last'),
    'but': ('aber', 'aber', 'second'),
    'and': ('und', 'und', 'second'),
}

# English degree of a predicate adjective: German.
DEGREES = {'': '', 'too': 'zu', 'very': 'sehr'}

# English determiner (plural after a slash): German stem and declension.
DETERMINERS = {
    'the': ('', 'definite'),
    'this/these': ('dies', 'definite'),
    'every': ('jed', 'definite'),
    'a/': ('ein', 'indefinite'),
    'no': ('kein', 'indefinite'),
    'my': ('mein', 'indefinite'),
    'his': ('sein', 'indefinite'),
    'her': ('ihr', 'indefinite'),
}

# The nouns that 'it' can mean: subject class, verb, + or - (negated), object class, conjunction, degrees |
# adjectives that describe the subject | adjectives that describe the object. An adjective describes the same
# side in every scene; else a small model would see too few examples of each rule.
SCENES = """
animal überqueren - way because too | müde faul scheu | breit gefährlich dunkel
animal fressen - food because too | müde nervös scheu | heiß hart trocken
puller ziehen - cart because too | müde faul | breit voll
animal springen_über - barrier because too | müde faul nervös | hoch breit
animal verlassen - shelter because ,very | müde faul scheu | warm sicher
vehicle überqueren - road because too | schwer groß | eng gefährlich
missile zerbrechen + fragile because ,very | schwer groß | dünn alt
item passen_in - container because too | groß lang | klein eng voll
container passen_in - container because too | groß lang | klein eng voll
vehicle überholen + vehicle because ,very | schnell neu | langsam alt
animal jagen + animal because ,very | hungrig wütend neugierig | langsam klein schwach
animal jagen + animal but too | müde faul nervös | stark gefährlich
animal helfen + animal because ,very | freundlich klug mutig | schwach krank jung
animal fürchten + animal because ,very | scheu nervös | stark gefährlich wild
animal fangen + animal because ,very | schnell klug hungrig | langsam schwach alt
animal fangen - animal because ,too | müde faul nervös | klein stark
animal folgen + animal because ,very | neugierig hungrig | schön jung
animal beißen + animal because ,very | wütend hungrig nervös | laut klein
animal hören + animal because ,very | wach neugierig | laut nah
animal an+greifen + animal because ,very | hungrig wütend mutig | schwach klein krank
animal misstrauen + animal because ,very | scheu nervös | gefährlich wild stark
animal schützen + animal because ,very | mutig klug | schwach klein jung
"""
