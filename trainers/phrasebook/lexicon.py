"""The words: tables of text, one lemma a line; "-" marks an empty cell."""

# English singular and plural | German article, singular, plural | marks.
# Marks: `he` or `she` is the pronoun of a person; `weak` nouns take their
# plural form in the oblique cases of the singular (der Junge, den Jungen).
NOUN_TABLE = {
    "person": """
        teacher teachers     | der Lehrer Lehrer                 | he
        doctor doctors       | der Arzt Ärzte                    | he
        man men              | der Mann Männer                   | he
        woman women          | die Frau Frauen                   | she
        child children       | das Kind Kinder                   |
        girl girls           | das Mädchen Mädchen               |
        boy boys             | der Junge Jungen                  | he weak
        student students     | der Student Studenten             | he weak
        neighbor neighbors   | der Nachbar Nachbarn              | he weak
        colleague colleagues | der Kollege Kollegen              | he weak
        cook cooks           | der Koch Köche                    | he
        guest guests         | der Gast Gäste                    | he
        friend friends       | der Freund Freunde                | he
        actress actresses    | die Schauspielerin Schauspielerinnen | she
        queen queens         | die Königin Königinnen            | she
        """,
    "relative": """
        mother -           | die Mutter -                | she
        father -           | der Vater -                 | he
        sister sisters     | die Schwester Schwestern    | she
        brother brothers   | der Bruder Brüder           | he
        daughter daughters | die Tochter Töchter         | she
        son sons           | der Sohn Söhne              | he
        aunt aunts         | die Tante Tanten            | she
        uncle uncles       | der Onkel Onkel             | he
        grandmother -      | die Großmutter -            | she
        grandfather -      | der Großvater -             | he
        """,
    "animal": """
        dog dogs       | der Hund Hunde              |
        cat cats       | die Katze Katzen            |
        horse horses   | das Pferd Pferde            |
        bird birds     | der Vogel Vögel             |
        cow cows       | die Kuh Kühe                |
        rabbit rabbits | das Kaninchen Kaninchen     |
        """,
    "text": """
        book books    | das Buch Bücher             |
        letter letters | der Brief Briefe           |
        poem poems    | das Gedicht Gedichte        |
        story stories | die Geschichte Geschichten  |
        novel novels  | der Roman Romane            |
        """,
    "press": """
        newspaper newspapers | die Zeitung Zeitungen           |
        magazine magazines   | die Zeitschrift Zeitschriften   |
        """,
    "food": """
        apple apples    | der Apfel Äpfel             |
        cake cakes      | der Kuchen Kuchen           |
        soup soups      | die Suppe Suppen            |
        egg eggs        | das Ei Eier                 |
        pear pears      | die Birne Birnen            |
        potato potatoes | die Kartoffel Kartoffeln    |
        """,
    "drink": """
        coffee - | der Kaffee -   |
        tea -    | der Tee -      |
        water -  | das Wasser -   |
        milk -   | die Milch -    |
        juice -  | der Saft -     |
        """,
    "clothes": """
        coat coats     | der Mantel Mäntel    |
        hat hats       | der Hut Hüte         |
        shirt shirts   | das Hemd Hemden      |
        dress dresses  | das Kleid Kleider    |
        jacket jackets | die Jacke Jacken     |
        skirt skirts   | der Rock Röcke       |
        """,
    "vessel": """
        cup cups           | die Tasse Tassen       |
        bottle bottles     | die Flasche Flaschen   |
        glass glasses      | das Glas Gläser        |
        basket baskets     | der Korb Körbe         |
        suitcase suitcases | der Koffer Koffer      |
        """,
    "small": """
        key keys           | der Schlüssel Schlüssel         |
        knife knives       | das Messer Messer               |
        umbrella umbrellas | der Regenschirm Regenschirme    |
        bag bags           | die Tasche Taschen              |
        picture pictures   | das Bild Bilder                 |
        gift gifts         | das Geschenk Geschenke          |
        map maps           | die Karte Karten                |
        """,
    "device": """
        lamp lamps         | die Lampe Lampen        |
        computer computers | der Computer Computer   |
        radio radios       | das Radio Radios        |
        camera cameras     | die Kamera Kameras      |
        """,
    "vehicle": """
        car cars         | das Auto Autos          |
        bicycle bicycles | das Fahrrad Fahrräder   |
        """,
    "opening": """
        door doors     | die Tür Türen           |
        window windows | das Fenster Fenster     |
        box boxes      | die Kiste Kisten        |
        """,
    "room": """
        kitchen kitchens | die Küche Küchen      |
        room rooms       | das Zimmer Zimmer     |
        office offices   | das Büro Büros        |
        """,
    "building": """
        house -   | das Haus -   |
        school -  | die Schule - |
        hotel -   | das Hotel -  |
        museum -  | das Museum - |
        church -  | die Kirche - |
        """,
    "area": """
        garden -  | der Garten - |
        park -    | der Park -   |
        city -    | die Stadt -  |
        village - | das Dorf -   |
        forest -  | der Wald -   |
        """,
    "site": """
        station stations | der Bahnhof Bahnhöfe  |
        lake lakes       | der See Seen          |
        river rivers     | der Fluss Flüsse      |
        bridge bridges   | die Brücke Brücken    |
        """,
    "furniture": """
        table tables  | der Tisch Tische      |
        chair chairs  | der Stuhl Stühle      |
        bed beds      | das Bett Betten       |
        bench benches | die Bank Bänke        |
        sofa sofas    | das Sofa Sofas        |
        """,
    "event": """
        concert -  | das Konzert - |
        exam -     | die Prüfung - |
        party -    | die Feier -   |
        film -     | der Film -    |
        trip -     | die Reise -   |
        """,
}

# English, its comparative | German, its comparative, stem if it differs |
# the nouns it goes with.
ADJECTIVE_TABLE = """
    old older | alt älter | people animal text clothes vehicle building \
        furniture
    young younger | jung jünger | person animal
    tall taller | groß größer | person
    strong stronger | stark stärker | person animal
    friendly friendlier | freundlich freundlicher | people
    tired - | müde müder müd | people
    famous - | berühmt berühmter | people
    sick sicker | krank kränker | people animal
    new newer | neu neuer | text press clothes vessel small device vehicle \
        opening building
    big bigger | groß größer | animal food vessel room building area furniture \
        opening
    small smaller | klein kleiner | animal food vessel small device room \
        building area furniture opening
    beautiful - | schön schöner | text clothes small vehicle room area site
    expensive - | teuer teurer teur | small goods
    cheap cheaper | billig billiger | food small goods
    heavy heavier | schwer schwerer | vessel device furniture opening
    long longer | lang länger | text clothes event
    boring - | langweilig langweiliger | text press event
    interesting - | interessant interessanter | text press event building
    fresh fresher | frisch frischer | food drink
    hot hotter | heiß heißer | drink
    cold colder | kalt kälter | drink
    dark darker | dunkel dunkler dunkl | room
    red redder | rot röter | clothes vessel vehicle furniture opening
    green greener | grün grüner | clothes vessel vehicle furniture opening
    black blacker | schwarz schwärzer | clothes animal small
"""

# English, past; German infinitive, stem of du/er if it changes; perfect;
# the nouns it goes with. "|" stands behind a separable prefix: auf|stehen.
VERB_TABLE = {
    "transitive": """
        buy bought; kaufen; hat gekauft; text food drink small goods
        sell sold; verkaufen; hat verkauft; animal goods
        read read; lesen lies; hat gelesen; text press
        write wrote; schreiben; hat geschrieben; text
        eat ate; essen iss; hat gegessen; food
        drink drank; trinken; hat getrunken; drink
        order ordered; bestellen; hat bestellt; food drink
        wear wore; tragen träg; hat getragen; clothes
        wash washed; waschen wäsch; hat gewaschen; clothes
        carry carried; tragen träg; hat getragen; vessel small
        see saw; sehen sieh; hat gesehen; people animal vehicle site building
        hear heard; hören; hat gehört; people animal
        find found; finden; hat gefunden; small animal clothes
        look for looked; suchen; hat gesucht; small animal clothes person
        lose lost; verlieren; hat verloren; small clothes
        forget forgot; vergessen vergiss; hat vergessen; small
        repair repaired; reparieren; hat repariert; device vehicle furniture
        love loved; lieben; hat geliebt; people animal
        know knew; kennen; hat gekannt; people area text
        visit visited; besuchen; hat besucht; people area
        ask asked; fragen; hat gefragt; people
        meet met; treffen triff; hat getroffen; people
        understand understood; verstehen; hat verstanden; people text
        need needed; brauchen; hat gebraucht; small device clothes vehicle \
            vessel
        have had; haben; hat gehabt; small device animal vehicle
        call called; an|rufen; hat angerufen; people
        pick up picked; ab|holen; hat abgeholt; people
        invite invited; ein|laden läd; hat eingeladen; people
        open opened; auf|machen; hat aufgemacht; opening
        close closed; zu|machen; hat zugemacht; opening
        turn on turned; ein|schalten; hat eingeschaltet; device
        turn off turned; aus|schalten; hat ausgeschaltet; device
        tidy up tidied; auf|räumen; hat aufgeräumt; room
        put on put; an|ziehen; hat angezogen; clothes
        take off took; aus|ziehen; hat ausgezogen; clothes
        throw away threw; weg|werfen wirf; hat weggeworfen; small food
        take along took; mit|nehmen nimm; hat mitgenommen; small clothes food
        bring back brought; zurück|bringen; hat zurückgebracht; small vessel \
            text
        """,
    "dative": """
        help helped; helfen hilf; hat geholfen; people
        thank thanked; danken; hat gedankt; people
        answer answered; antworten; hat geantwortet; people
        follow followed; folgen; ist gefolgt; person animal
        trust trusted; vertrauen; hat vertraut; people
        listen to listened; zu|hören; hat zugehört; people
        """,
    # The person stands in the dative; the objects below in the accusative.
    "ditransitive": """
        give gave; geben gib; hat gegeben; text small food
        send sent; schicken; hat geschickt; text small
        show showed; zeigen; hat gezeigt; text small animal clothes
        lend lent; leihen; hat geliehen; clothes vehicle device
        bring brought; bringen; hat gebracht; press food vessel
        """,
    # As above, but English says "to": reads a poem to the child.
    "dative_with_to": """
        read read; vor|lesen lies; hat vorgelesen; text
        give back gave; zurück|geben gib; hat zurückgegeben; small text
        """,
    # The fifth cell: the prepositions, and the case that the German one takes.
    "prepositional": """
        wait waited; warten; hat gewartet; people; for auf accusative
        think thought; denken; hat gedacht; people; of an accusative
        speak spoke; sprechen sprich; hat gesprochen; people; with mit dative
        dream dreamed; träumen; hat geträumt; person animal; of von dative
        play played; spielen; hat gespielt; animal; with mit dative
        laugh laughed; lachen; hat gelacht; person text; at über accusative
        """,
    "activity": """
        work worked; arbeiten; hat gearbeitet
        sleep slept; schlafen schläf; hat geschlafen
        dance danced; tanzen; hat getanzt
        sing sang; singen; hat gesungen
        cry cried; weinen; hat geweint
        cook cooked; kochen; hat gekocht
        play played; spielen; hat gespielt
        wait waited; warten; hat gewartet
        watch television watched; fern|sehen sieh; hat ferngesehen
        """,
    "event": """
        get up got; auf|stehen; ist aufgestanden
        wake up woke; auf|wachen; ist aufgewacht
        arrive arrived; an|kommen; ist angekommen
        come back came; zurück|kommen; ist zurückgekommen
        leave left; weg|gehen; ist weggegangen
        """,
    "motion": """
        go went; gehen; ist gegangen
        come came; kommen; ist gekommen
        run ran; laufen läuf; ist gelaufen
        """,
    "travel": "travel traveled; fahren fähr; ist gefahren",
    # "Put" has two verbs: `gelegt` of flat things, `gestellt` of upright ones.
    "placing": """
        put put; legen; hat gelegt; text press clothes small
        put put; stellen; hat gestellt; vessel device
        """,
    # Of the same two kinds, but here the noun is the subject.
    "position": """
        lie lay; liegen; hat gelegen; text press clothes small
        stand stood; stehen; hat gestanden; vessel device
        """,
    "speech": """
        know knew; wissen; hat gewusst
        believe believed; glauben; hat geglaubt
        hope hoped; hoffen; hat gehofft
        say said; sagen; hat gesagt
        """,
    "weather": """
        rain rained; regnen; hat geregnet
        snow snowed; schneien; hat geschneit
        """,
    "copula": "be was; sein; ist gewesen",
    "price": """
        cost cost; kosten; hat gekostet; clothes device vehicle furniture
        """,
}

# Names for several categories of nouns, in the tables.
GROUPS = {
    "people": "person relative",
    "goods": "clothes vessel device vehicle furniture",
}

# English base; tail; present; past; German present; past, by person.
MODAL_TABLE = """
    have; to; have have has have; had had had had; \
        muss musst muss müssen; musste musstest musste mussten
    want; to; want want wants want; wanted wanted wanted wanted; \
        will willst will wollen; wollte wolltest wollte wollten
    be; allowed to; am are is are; was were was were; \
        darf darfst darf dürfen; durfte durftest durfte durften
    can; ; can can can can; ; kann kannst kann können;
    should; ; should should should should; ; \
        sollte solltest sollte sollten;
"""
